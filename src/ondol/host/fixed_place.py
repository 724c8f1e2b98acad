"""Directories at fixed paths, for tools whose caches only work where they were made (`enter_place` does it).

Here is what the job needs to know: the paths, whether this machine allows it, and how to start a command there.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pkgutil import get_data

#: Every Linux distribution has this directory and hardly anything uses it; a new one in `/` would need its owner.
BASE = "/srv"
#: Below it each tool has its place. In every stored entry: another value is another set of entries.
ROOT = f"{BASE}/ondol"
#: A probe that takes longer is stuck in the kernel (a dead network mount below BASE).
_PATIENCE = 10.0


def path(name: str) -> str:
    """Where the place of this name is, for the command."""
    return f"{ROOT}/{name}"


def command_line(through: Sequence[str], program: str, argv: Sequence[str], blocked: Iterable[int] = ()) -> list[str]:
    """The whole command line, for a starter; `blocked` are the signals that the program shall find blocked."""
    return [*through, ",".join(str(int(number)) for number in blocked), program, *argv]


def why_not(places: Mapping[str, str]) -> str:
    """Why this machine does not allow it; empty if it does. Tried in full, by a process that then ends."""
    try:
        tried = subprocess.run(
            [*starter(places, "try"), ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"trying failed: {error}"
    said = tried.stdout.decode("utf-8", "replace").strip()
    return "" if tried.returncode == 0 else said or f"trying failed with status {tried.returncode}"


def starter(places: Mapping[str, str], mode: str = "run") -> list[str]:
    """The words that start a command with these directories (name → directory) at their places: see `command_line`."""
    pairs = [word for pair in places.items() for word in pair]
    # -I -S: nothing of the user's environment, no site packages, and half the time to start.
    return [sys.executable, "-I", "-S", *_program(), mode, BASE, str(len(places)), *pairs]


def _program() -> list[str]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "enter_place.py")
    if os.path.exists(path):
        return [path]
    # In `ondol.pyz` it is no file that Python could be given.
    return ["-c", (get_data("ondol.host", "enter_place.py") or b"").decode()]
