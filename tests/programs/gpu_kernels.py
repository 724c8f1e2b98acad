"""Real kernels on a real GPU, results checked; prints what Triton compiled and what was a hit."""

import json

import torch
import triton
import triton.language as tl
from triton import knobs

counts = {"compiled": 0, "hits": 0}


def listen(*, cache_hit, **_others):
    counts["hits" if cache_hit else "compiled"] += 1


knobs.compilation.listener = listen


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):  # noqa: N803 - Triton's custom
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + places, mask=places < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + places, values / tl.sum(values, axis=0), mask=places < columns)


for size in (1000, 4096):
    a, b = torch.randn(size, device="cuda"), torch.randn(size, device="cuda")
    total = torch.empty_like(a)
    for block in (128, 256, 512):
        add[(triton.cdiv(size, block),)](a, b, total, size, BLOCK=block)
        assert torch.allclose(total, a + b)
    matrix = torch.randn(64, size, device="cuda")
    out = torch.empty_like(matrix)
    softmax[(64,)](matrix, out, size, BLOCK=triton.next_power_of_2(size))
    assert torch.allclose(out, torch.softmax(matrix, dim=1), atol=1e-5)
print(json.dumps({**counts, "triton": triton.__version__, "device": torch.cuda.get_device_name()}))
