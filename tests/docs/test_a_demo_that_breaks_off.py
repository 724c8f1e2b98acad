"""`make demo` is the first thing that anybody sees: on whatever Python and machine, it ends with its table."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ondol.host import toml
from people import ROOT, needs_root

DEMO = ROOT / "examples" / "demo" / "__main__.py"


@needs_root
@pytest.mark.root
def test_a_python_that_only_root_can_execute_leaves_out_the_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyenv's or uv's, in root's home: the demo broke off with a traceback before its table."""
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "home" / "python"))
    demo = runpy.run_path(str(DEMO))
    assert "cannot execute this Python" in demo["_why_not_another_user"](tmp_path)


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_python_that_is_promised_gets_exactly_one_triton(python: str) -> None:
    """Triton 3.9 has no build for 3.10, and so `make demo` could not be installed there."""
    project = toml.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.10"
    wanted = [Requirement(line) for line in project["optional-dependencies"]["demo"]]
    [version] = [str(one.specifier) for one in wanted if one.marker and one.marker.evaluate({"python_version": python})]
    assert version == ("==3.8.0" if python == "3.10" else "==3.9.0")
