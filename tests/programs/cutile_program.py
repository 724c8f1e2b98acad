"""cuTile's own cache code, with made-up kernels: what a program that compiles these keys would look up and store."""

import json
import os
import sys

from cutile_cache._cache import cache_lookup, cache_store
from cutile_cache._env import get_cache_dir_from_env

where = get_cache_dir_from_env()
counts = {"made": 0, "reused": 0}
answer = []
for name in sys.argv[1:] or ["add", "matmul"]:
    code = cache_lookup(where, name)
    counts["made" if code is None else "reused"] += 1
    if code is None:
        code = name.encode() * 1000
        cache_store(where, name, code)
    answer.append(len(code))
print(json.dumps({**counts, "answer": answer, "files": sorted(os.listdir(where))}))
