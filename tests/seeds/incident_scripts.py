"""The incident scripts in `examples/`, run for real; their parts, for tests that break one on purpose; their workflows."""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from people import ROOT

EXAMPLES = ROOT / "examples"


class Told:
    """What one run of a script said."""

    def __init__(self, facts: dict[str, Any], status: int, place: Path) -> None:
        self.facts, self.status, self.place = facts, status, place
        self.before: dict[str, Any] = facts["before"]
        self.after: dict[str, Any] = facts["after"]


def told_by(name: str) -> Any:
    """A fixture: what this example's script said, run once for all tests of a module."""

    @pytest.fixture(scope="module")
    def told() -> Iterator[Told]:
        told = _tell(name)
        yield told
        subprocess.run(["rm", "-rf", told.place], check=False)

    return told


def _tell(name: str, limit: float = 560) -> Told:
    command = [sys.executable, str(EXAMPLES / name / "incident.py"), "--json", "--keep"]
    # Other users take part, and a TMPDIR may be private.
    environment = {**os.environ, "TMPDIR": "/tmp"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.stdout.startswith("{"), done
    place = Path(done.stderr.strip().rpartition(" ")[2])
    return Told(json.loads(done.stdout), done.returncode, place)


def script_of(name: str) -> ModuleType:
    """The script as a module, to be taken apart."""
    spec = importlib.util.spec_from_file_location(f"incident_of_{name}", EXAMPLES / name / "incident.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_diff(readme: Path, before: Path, after: Path) -> None:
    """The page shows every line that changes, and no other."""
    lines = difflib.unified_diff(before.read_text().splitlines(), after.read_text().splitlines(), n=0, lineterm="")
    real = [line for line in lines if line[0] in "+-" and line[:3] not in ("+++", "---")]
    (shown,) = re.findall(r"```diff\n(.*?)```", readme.read_text(), re.DOTALL)
    assert [line for line in shown.splitlines() if line[0] in "+-"] == real
