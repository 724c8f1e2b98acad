"""A real Triton program: compiles several kernels for a CUDA target, needs no GPU, and says what was a hit.

The counts come from Triton's own compilation listener, not from us.
"""

from __future__ import annotations

import json
import sys
import time

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scale_and_shift(x, out, count, factor, offset, BLOCK: tl.constexpr):  # noqa: N803 - Triton's custom
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(out + places, tl.load(x + places, mask=inside) * factor + offset, mask=inside)


@triton.jit
def row_norm(x, out, stride, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    values = tl.load(x + row * stride + places, mask=inside, other=0.0)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    tl.store(out + row * stride + places, centred / tl.sqrt(variance + 1e-5), mask=inside)


@triton.jit
def multiply(a, b, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):  # noqa: N803
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    depth = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for start in range(tl.cdiv(k, TILE_K)):
        here = start * TILE_K + depth
        left = tl.load(a + rows[:, None] * k + here[None, :], mask=here[None, :] < k, other=0.0)
        right = tl.load(b + here[:, None] * n + columns[None, :], mask=here[:, None] < k, other=0.0)
        total += tl.dot(left, right)
    keep = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=keep)


def work(many: int):
    """(kernel, signature, constants) of what the program needs."""
    for block in (256, 512, 1024, 2048)[:many]:
        signature = {"x": "*fp32", "out": "*fp32", "count": "i32", "factor": "fp32", "offset": "fp32"}
        signature |= {"BLOCK": "constexpr"}
        yield scale_and_shift, signature, {"BLOCK": block}
    for block in (512, 1024)[:many]:
        signature = {"x": "*fp32", "out": "*fp32", "stride": "i32", "columns": "i32", "BLOCK": "constexpr"}
        yield row_norm, signature, {"BLOCK": block}
    for tile in ((64, 64, 32), (128, 64, 32), (128, 128, 64))[: many - 1]:
        signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "m": "i32", "n": "i32", "k": "i32"}
        signature |= {"TILE_M": "constexpr", "TILE_N": "constexpr", "TILE_K": "constexpr"}
        yield multiply, signature, dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile, strict=True))


def main(many: int) -> None:
    counts = {"compiled": 0, "hits": 0}

    def listen(*, cache_hit, **_others):
        counts["hits" if cache_hit else "compiled"] += 1

    knobs.compilation.listener = listen
    started = time.perf_counter()
    for kernel, signature, constants in work(many):
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        binary = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
        assert binary.startswith(b"\x7fELF"), "not a cubin"
    print(json.dumps({**counts, "seconds": round(time.perf_counter() - started, 3), "triton": triton.__version__}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
