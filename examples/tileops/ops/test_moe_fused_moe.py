from __future__ import annotations

import moe
import pytest
import torch
from launching import DEVICE


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_fused_moe(block: int, width: int) -> None:
    torch.manual_seed(0)
    x, gate, up = torch.rand(50, 32), torch.rand(4, 32, width), torch.rand(4, 32, width)
    given = [one.to(DEVICE) for one in (x, gate, up, torch.randint(0, 4, (50,)))]
    assert torch.allclose(moe.forward(*given, block), moe.reference(*given), rtol=1e-3, atol=1e-2)
