"""A fast stand-in for a program that uses Triton: the same files, in the same order, by the same system calls.

    standin.py NAME…      for each kernel: a hit if its group is whole, else "compile" it; prints what happened as JSON

Follows Triton's FileCacheManager: a temporary directory inside the key directory, os.replace per file, the group last;
on a hit the children are read from the absolute paths that the group names. Dies as Triton dies where it may not write.
"""

import json
import os
import sys
from base64 import b32encode

try:  # a tenth of hashlib's time to load, which is that of OpenSSL
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256

CACHE = os.environ.get("TRITON_CACHE_DIR") or os.path.join(os.environ.get("HOME", "/"), ".triton", "cache")
ELF = b"\x7fELF\x02\x01" + bytes(58)


def key_of(name: str) -> str:
    return b32encode(sha256(name.encode()).digest()).decode().rstrip("=")


def put(folder: str, name: str, data: bytes) -> str:
    temporary = os.path.join(folder, f"tmp.pid_{os.getpid()}_{os.urandom(16).hex()}")
    os.makedirs(temporary, exist_ok=True)
    with open(os.path.join(temporary, name), "wb") as file:
        file.write(data)
    os.replace(os.path.join(temporary, name), os.path.join(folder, name))
    os.removedirs(temporary)
    return os.path.join(folder, name)


def contents(name: str) -> dict:
    # Every process makes other bytes, so that any mixing of two producers shows.
    producer = f"{os.getpid()}-{os.urandom(16).hex()}".encode()
    return {
        f"{name}.source": b"producer " + producer + b"\n" + b"x" * 2000,
        f"{name}.ttir": b"producer " + producer + b"\n",
        f"{name}.cubin": ELF + b"producer " + producer + b"\n",
        f"{name}.json": json.dumps({"producer": producer.decode(), "triton_version": "3.9.0"}).encode(),
    }


def compile_kernel(name: str) -> None:
    folder = os.path.join(CACHE, key_of(name))
    os.makedirs(folder, exist_ok=True)
    group = {child: put(folder, child, data) for child, data in contents(name).items()}
    put(folder, f"__grp__{name}.json", json.dumps({"child_paths": group}).encode())


def check_whole(name: str, paths: dict) -> None:
    """All files of an entry must be of one producer; anything else is what Ondol promises can never be."""
    producer = json.loads(open(paths[f"{name}.json"], "rb").read())["producer"].encode()
    for child, path in paths.items():
        data = open(path, "rb").read()
        if producer not in data:
            sys.exit(f"MIXED OR TORN: {child} is not of producer {producer!r}")


def use(name: str) -> bool:
    """True for a hit."""
    group = os.path.join(CACHE, key_of(name), f"__grp__{name}.json")
    if os.path.exists(group):
        with open(group) as file:
            paths = json.load(file)["child_paths"]
        if all(os.path.exists(path) for path in paths.values()):
            check_whole(name, paths)
            return True
    compile_kernel(name)
    return False


if __name__ == "__main__":
    hits = [use(name) for name in sys.argv[1:]]
    print(json.dumps({"hits": sum(hits), "compiled": len(hits) - sum(hits), "cache": CACHE}))
