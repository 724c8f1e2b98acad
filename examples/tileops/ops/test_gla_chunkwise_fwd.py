from __future__ import annotations

import gla
import pytest
import torch
from launching import DEVICE


@pytest.mark.parametrize(("chunk", "key", "value"), [(16, 16, 16), (16, 32, 16), (16, 16, 32)])
def test_gla_fwd(chunk: int, key: int, value: int) -> None:
    given = [one.to(DEVICE) for one in gla.example(2, 64, key, value)]
    assert torch.allclose(gla.forward(*given, chunk), gla.reference(*given), rtol=1e-3, atol=1e-3)
