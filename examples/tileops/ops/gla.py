"""Gated linear attention: h[t] = exp(g[t]) * h[t-1] + k[t] v[t], o[t] = q[t] h[t]; step by step, and in chunks.

Tensors are (sequences, steps, width), contiguous.
"""
# ruff: noqa: N803 - Triton's custom

from __future__ import annotations

import torch
import triton
import triton.language as tl
from launching import launch


@triton.jit
def gla_recurrence(q, k, v, g, o, steps, K: tl.constexpr, V: tl.constexpr):
    sequence = tl.program_id(0)
    keys, values = tl.arange(0, K), tl.arange(0, V)
    copies = tl.arange(0, 16)  # the least that a dot product takes; one of them is kept
    state = tl.full((K, V), 0.0, tl.float32)
    for step in range(steps):
        row = sequence * steps + step
        decay = tl.exp(tl.load(g + row * K + keys))
        here = tl.load(k + row * K + keys)[:, None] * tl.load(v + row * V + values)[None, :]
        state = state * decay[:, None] + here
        queries = tl.broadcast_to(tl.load(q + row * K + keys)[None, :], (16, K))
        out = tl.dot(queries, state, input_precision="ieee")
        tl.store(o + row * V + values[None, :] + 0 * copies[:, None], out, mask=copies[:, None] == 0)


@triton.jit
def gla_chunkwise_fwd(q, k, v, g, o, steps, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr):
    sequence = tl.program_id(0)
    times, keys, values = tl.arange(0, C), tl.arange(0, K), tl.arange(0, V)
    seen = times[:, None] >= times[None, :]
    sums, ones = tl.where(seen, 1.0, 0.0), tl.full((C, V), 1.0, tl.float32)
    state = tl.full((K, V), 0.0, tl.float32)
    for chunk in range(steps // C):
        rows = sequence * steps + chunk * C + times
        narrow, wide = rows[:, None] * K + keys[None, :], rows[:, None] * V + values[None, :]
        gates = tl.load(g + narrow)
        decay = tl.dot(sums, gates, input_precision="ieee")
        whole = tl.exp(tl.dot(tl.trans(gates), ones, input_precision="ieee"))
        queries, here = tl.load(q + narrow) * tl.exp(decay), tl.load(k + narrow)
        scores = tl.where(seen, tl.dot(queries, tl.trans(here * tl.exp(-decay)), input_precision="ieee"), 0.0)
        out = tl.dot(queries, state, input_precision="ieee")
        out += tl.dot(scores, tl.load(v + wide), input_precision="ieee")
        tl.store(o + wide, out)
        state += tl.dot(tl.trans(here * tl.exp(-decay)), tl.load(v + wide), input_precision="ieee")
        state *= whole


@triton.jit
def gla_chunkwise_bwd(q, k, v, g, do, dk, dv, steps, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr):
    sequence = tl.program_id(0)
    times, keys, values = tl.arange(0, C), tl.arange(0, K), tl.arange(0, V)
    seen = times[:, None] >= times[None, :]
    sums, ones = tl.where(seen, 1.0, 0.0), tl.full((C, V), 1.0, tl.float32)
    later = tl.full((K, V), 0.0, tl.float32)
    chunks = steps // C
    for back in range(chunks):
        rows = sequence * steps + (chunks - 1 - back) * C + times
        narrow, wide = rows[:, None] * K + keys[None, :], rows[:, None] * V + values[None, :]
        gates = tl.load(g + narrow)
        decay = tl.dot(sums, gates, input_precision="ieee")
        whole = tl.exp(tl.dot(tl.trans(gates), ones, input_precision="ieee"))
        queries, here = tl.load(q + narrow) * tl.exp(decay), tl.load(k + narrow)
        early, grad = here * tl.exp(-decay), tl.load(do + wide)
        scores = tl.where(seen, tl.dot(queries, tl.trans(early), input_precision="ieee"), 0.0)
        blame = tl.where(seen, tl.dot(grad, tl.trans(tl.load(v + wide)), input_precision="ieee"), 0.0)
        grad_v = tl.dot(tl.trans(scores), grad, input_precision="ieee")
        later *= whole
        grad_v += tl.dot(early, later, input_precision="ieee")
        grad_k = tl.dot(tl.trans(blame), queries, input_precision="ieee")
        grad_k += tl.dot(tl.load(v + wide), tl.trans(later), input_precision="ieee")
        tl.store(dv + wide, grad_v)
        tl.store(dk + narrow, grad_k * tl.exp(-decay))
        later += tl.dot(tl.trans(queries), grad, input_precision="ieee")


def recurrence(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    o = torch.empty_like(v)
    launch(gla_recurrence, (q.shape[0],), q, k, v, g, o, q.shape[1], K=q.shape[2], V=v.shape[2])
    return o


def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, chunk: int) -> torch.Tensor:
    o = torch.empty_like(v)
    sizes = {"C": chunk, "K": q.shape[2], "V": v.shape[2]}
    launch(gla_chunkwise_fwd, (q.shape[0],), q, k, v, g, o, q.shape[1], **sizes)
    return o


def backward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, do: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of k and v."""
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    sizes = {"C": chunk, "K": q.shape[2], "V": v.shape[2]}
    launch(gla_chunkwise_bwd, (q.shape[0],), q, k, v, g, do, dk, dv, q.shape[1], **sizes)
    return dk, dv


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    state, out = torch.zeros(q.shape[0], q.shape[2], v.shape[2], device=q.device), []
    for step in range(q.shape[1]):
        state = state * g[:, step].exp()[..., None] + k[:, step][..., None] * v[:, step][:, None]
        out.append((q[:, step][..., None] * state).sum(1))
    return torch.stack(out, 1)


def example(sequences: int, steps: int, key: int, value: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    shapes = [(sequences, steps, width) for width in (key, key, value, key)]
    q, k, v, g = (torch.rand(shape) for shape in shapes)
    return q, k, v, -g / 8
