from __future__ import annotations

import mamba
import pytest
import torch
from launching import DEVICE


@pytest.mark.parametrize("decay", [-0.1, -0.5, -1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_mamba2_fwd_e2e(seed: int, decay: float) -> None:
    torch._dynamo.reset()
    given = [one.to(DEVICE) for one in mamba.example(seed, decay)]
    out = torch.compile(mamba.scan)(*given)
    assert torch.allclose(out, mamba.reference(*given), rtol=1e-3, atol=1e-3)
