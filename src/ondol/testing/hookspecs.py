"""Hooks that a suite or a vendor's plugin may implement."""

import pytest


@pytest.hookspec(firstresult=True)
def pytest_ondol_device_fault(item: pytest.Item) -> str | None:
    """Called in the worker after every item: what makes the device's context unusable from now on, or None.

    Whoever says something ends the worker after this item; the next one runs in a fresh process.
    """
