"""An incident script taken apart: a copy without Ondol in it, and facts of which one is not as it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

from people import ROOT
from seeds.incident_scripts import EXAMPLES, script_of


def without_ondol(name: str, place: Path, after: str, before: str) -> Path:
    """A copy of the example in which the file `after` is what `before` is."""
    shutil.copytree(EXAMPLES, place / "examples", ignore=shutil.ignore_patterns("__pycache__", "build"))
    (place / "tests").symlink_to(ROOT / "tests")
    folder = place / "examples" / name
    shutil.copy(folder / before, folder / after)
    return folder


def script_in(folder: Path) -> ModuleType:
    """As `script_of`, for a copy."""
    return script_of(str(folder))


def broken(facts: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The same facts but for one."""
    copy: dict[str, Any] = json.loads(json.dumps(facts))
    *parents, last = path.split(".")
    part = copy
    for name in parents:
        part = part[name]
    part[last] = value
    return copy
