"""A selective state space layer, as Mamba has it, left to torch.compile."""

from __future__ import annotations

import torch


def scan(x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """All steps at once: what each earlier step leaves at each later one."""
    step = torch.nn.functional.softplus(dt)
    sums = (step * a)[:, None].expand(-1, x.shape[1], -1).tril().sum(-1)
    left = torch.exp(sums[:, :, None] - sums[:, None, :]).tril()
    weights = left * (c[:, :, None] * b[:, None]).sum(-1)
    return (weights[..., None] * (step[..., None] * x)[:, None]).sum(2)


def reference(x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    step = torch.nn.functional.softplus(dt)
    state, out = torch.zeros(x.shape[0], b.shape[2], x.shape[2], device=x.device), []
    for t in range(x.shape[1]):
        decay = (step[:, t] * a).exp()[:, None, None]
        state = state * decay + step[:, t][:, None, None] * b[:, t][..., None] * x[:, t][:, None]
        out.append((c[:, t][..., None] * state).sum(1))
    return torch.stack(out, 1)


def example(seed: int, decay: float) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(seed)
    x, dt, b, c = torch.rand(2, 32, 48), torch.rand(2, 32), torch.rand(2, 32, 16), torch.rand(2, 32, 16)
    return x, dt, torch.tensor(decay), b, c
