from __future__ import annotations

import gla
import pytest
import torch
from launching import DEVICE


@pytest.mark.parametrize(("chunk", "key", "value"), [(16, 16, 16), (16, 32, 16), (16, 16, 32)])
def test_gla_bwd(chunk: int, key: int, value: int) -> None:
    q, k, v, g = (one.to(DEVICE) for one in gla.example(2, 64, key, value))
    out = gla.reference(q, k.requires_grad_(), v.requires_grad_(), g)
    do = torch.rand_like(out)
    right = torch.autograd.grad(out, (k, v), do)
    with torch.no_grad():
        got = gla.backward(q, k, v, g, do, chunk)
    assert all(torch.allclose(one, other, rtol=1e-3, atol=1e-2) for one, other in zip(got, right, strict=True))
