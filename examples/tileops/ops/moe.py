"""A fused mixture of experts: each token goes through the gated layer of its expert."""
# ruff: noqa: N803 - Triton's custom

from __future__ import annotations

import torch
import triton
import triton.language as tl
from launching import launch


@triton.jit
def fused_moe(x, gate, up, order, expert, out, count, M: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """A block of M tokens of one expert; `order` is the tokens sorted by expert, each expert's filled up to blocks."""
    block = tl.program_id(0)
    tokens = tl.load(order + block * M + tl.arange(0, M))
    inside = tokens < count
    depth, width = tl.arange(0, D), tl.arange(0, F)
    weights = tl.load(expert + block) * D * F + depth[:, None] * F + width[None, :]
    rows = tl.load(x + tokens[:, None] * D + depth[None, :], mask=inside[:, None], other=0.0)
    gated = tl.dot(rows, tl.load(gate + weights), input_precision="ieee")
    gated = gated / (1.0 + tl.exp(-gated)) * tl.dot(rows, tl.load(up + weights), input_precision="ieee")
    tl.store(out + tokens[:, None] * F + width[None, :], gated, mask=inside[:, None])


def forward(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, chosen: torch.Tensor, block: int) -> torch.Tensor:
    order, expert = [], []
    for number in range(gate.shape[0]):
        mine = (chosen == number).nonzero().flatten().tolist()
        blocks = -(-len(mine) // block)
        order += mine + [len(x)] * (blocks * block - len(mine))
        expert += [number] * blocks
    lists = [torch.tensor(numbers, dtype=torch.int32, device=x.device) for numbers in (order, expert)]
    out = torch.empty(len(x), gate.shape[2], device=x.device)
    sizes = {"M": block, "D": gate.shape[1], "F": gate.shape[2]}
    launch(fused_moe, (len(expert),), x, gate, up, *lists, out, len(x), **sizes)
    return out


def reference(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    gated, straight = (torch.einsum("td,tdf->tf", x, weight[chosen]) for weight in (gate, up))
    return torch.nn.functional.silu(gated) * straight
