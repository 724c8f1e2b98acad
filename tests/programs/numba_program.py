"""Numba functions with `cache=True`; their own statistics count. `float` adds a signature to one of them."""

import json
import sys

import numba


@numba.njit(cache=True)
def total(n):
    result = 0 * n
    for i in range(int(n)):
        result += i
    return result


@numba.njit(cache=True)
def twice(n):
    return total(n) * 2


answer = [total(10), twice(3)]
if sys.argv[1:] == ["float"]:
    answer.append(total(4.5))
functions = (total, twice)
made = sum(sum(f.stats.cache_misses.values()) for f in functions)
reused = sum(sum(f.stats.cache_hits.values()) for f in functions)
print(json.dumps({"made": made, "reused": reused, "answer": answer}))
