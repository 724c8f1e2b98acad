"""Launch a real kernel through Triton's whole path on the fake driver; prints what was compiled and what was built."""

import json
import os

import triton
import triton.language as tl
from triton import knobs


@triton.jit
def fill(out, value, n, BLOCK: tl.constexpr):  # noqa: N803 - Triton's custom
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, value, mask=places < n)


class Pointer:
    """The least that Triton asks of a tensor."""

    dtype = "float32"

    def data_ptr(self) -> int:
        return 4096


counts = {"compiled": 0, "hits": 0, "built": 0}


def listen(*, cache_hit, **_others):
    counts["hits" if cache_hit else "compiled"] += 1


def build(*arguments, **named):
    counts["built"] += 1
    return original(*arguments, **named)


knobs.compilation.listener = listen
import triton.runtime.build as builder  # noqa: E402

original = builder._build
builder._build = build
fill[(4,)](Pointer(), 1.5, 1000, BLOCK=256)
print(json.dumps({**counts, "cache": os.environ["TRITON_CACHE_DIR"]}))
