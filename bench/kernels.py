# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
"""Real Triton kernels, compiled for a CUDA target; no GPU, no driver and no torch is needed for that.

    python -m bench.kernels program     compile one of each, as a program would at its first launches
    python -m bench.kernels variants    compile a few dozen variants, as a test matrix would

Either prints one JSON line: how many were hits and how many were compiled, as Triton's own listener counted them.
(Kernels have no type annotations but `constexpr`: Triton reads annotations, mypy is told so above.)
"""

import json
import sys
from collections.abc import Iterator

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def scaled_sum(out, left, right, factor, count, block: tl.constexpr):
    """out = left * factor + right"""
    place = tl.program_id(0) * block + tl.arange(0, block)
    inside = place < count
    first = tl.load(left + place, mask=inside)
    second = tl.load(right + place, mask=inside)
    tl.store(out + place, first * factor + second, mask=inside)


@triton.jit
def row_softmax(out, rows, stride, width, block: tl.constexpr):
    """The softmax of each row, one program a row."""
    row = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < width
    values = tl.load(rows + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    grown = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + column, grown / tl.sum(grown, axis=0), mask=inside)


@triton.jit
def row_norm(out, rows, weight, stride, width, block: tl.constexpr):
    """Root-mean-square normalisation of each row."""
    row = tl.program_id(0)
    column = tl.arange(0, block)
    inside = column < width
    values = tl.load(rows + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / width + 1e-6)
    gains = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * stride + column, values * scale * gains, mask=inside)


@triton.jit
def product(out, left, right, m, n, k, bm: tl.constexpr, bn: tl.constexpr, bk: tl.constexpr):
    """A blocked matrix product of row-major matrices."""
    rows = tl.program_id(0) * bm + tl.arange(0, bm)
    columns = tl.program_id(1) * bn + tl.arange(0, bn)
    depth = tl.arange(0, bk)
    total = tl.zeros((bm, bn), dtype=tl.float32)
    for start in range(tl.cdiv(k, bk)):
        along = start * bk + depth
        one = tl.load(left + rows[:, None] * k + along[None, :], mask=along[None, :] < k, other=0.0)
        other = tl.load(right + along[:, None] * n + columns[None, :], mask=along[:, None] < k, other=0.0)
        total += tl.dot(one, other)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], total, mask=inside)


@triton.jit
def gated(out, rows, stride, width, block: tl.constexpr):
    """x * sigmoid(gate), both halves of one row."""
    row = tl.program_id(0)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    values = tl.load(rows + row * stride + column, mask=inside).to(tl.float32)
    gate = tl.load(rows + row * stride + width + column, mask=inside).to(tl.float32)
    tl.store(out + row * width + column, values / (1.0 + tl.exp(-gate)), mask=inside)


#: kernel → its pointers and its numbers, in order; what remains is `constexpr`.
_ARGUMENTS = {
    "scaled_sum": (("out", "left", "right"), {"factor": "fp32", "count": "i32"}),
    "row_softmax": (("out", "rows"), {"stride": "i32", "width": "i32"}),
    "row_norm": (("out", "rows", "weight"), {"stride": "i32", "width": "i32"}),
    "product": (("out", "left", "right"), {"m": "i32", "n": "i32", "k": "i32"}),
    "gated": (("out", "rows"), {"stride": "i32", "width": "i32"}),
}
_KERNELS = {
    "scaled_sum": scaled_sum,
    "row_softmax": row_softmax,
    "row_norm": row_norm,
    "product": product,
    "gated": gated,
}


def build(name: str, dtype: str, **constants: int) -> None:
    """Compile one kernel, or find it in Triton's cache."""
    pointers, numbers = _ARGUMENTS[name]
    signature = {**dict.fromkeys(pointers, f"*{dtype}"), **numbers, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(fn=_KERNELS[name], signature=signature, constexprs=constants)
    triton.compile(source, target=_TARGET)


def program() -> None:
    """One of each, and a second product: what a small model's first step compiles."""
    build("scaled_sum", "fp32", block=1024)
    build("row_softmax", "fp32", block=1024)
    build("row_norm", "fp16", block=2048)
    build("gated", "fp16", block=1024)
    build("product", "fp16", bm=128, bn=128, bk=64)
    build("product", "fp16", bm=64, bn=128, bk=32)


def variants() -> Iterator[tuple[str, str, dict[str, int]]]:
    """A test matrix: types times block sizes."""
    for dtype in ("fp16", "fp32"):
        for name in ("scaled_sum", "row_softmax", "row_norm", "gated"):
            for block in (512, 2048):
                yield name, dtype, {"block": block}
    for bm, bn, bk in ((32, 64, 32), (64, 64, 32), (64, 64, 64), (64, 128, 32), (128, 64, 64), (128, 128, 32)):
        yield "product", "fp16", {"bm": bm, "bn": bn, "bk": bk}
        yield "product", "bf16", {"bm": bm, "bn": bn, "bk": bk}
    for bm, bn, bk in ((128, 128, 64), (128, 256, 64), (256, 64, 64), (256, 128, 32)):
        yield "product", "fp16", {"bm": bm, "bn": bn, "bk": bk}


def main(what: str) -> None:
    """Compile, and say how many were hits."""
    hits: list[bool] = []
    knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    if what == "variants":
        for name, dtype, constants in variants():
            build(name, dtype, **constants)
    else:
        program()
    print(json.dumps({"hits": sum(hits), "compiled": len(hits) - sum(hits)}))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "program")
