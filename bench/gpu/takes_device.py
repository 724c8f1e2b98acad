"""A pytest plugin that makes any suite take its device while it is collected, as a conftest with a tensor does."""

from __future__ import annotations

held: list[object] = []


def pytest_collectstart() -> None:
    if not held:
        import torch

        held.append(torch.ones(1, device="cuda"))
