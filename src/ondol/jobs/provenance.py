"""Who made an entry, where, when and from which commit: what makes a later revocation possible."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ondol import __version__
from ondol.host import identity
from ondol.trust import ci


def of_job(env: Mapping[str, str]) -> dict[str, Any]:
    known: dict[str, Any] = {**ci.provenance(env)}
    if "commit" not in known:
        commit = _git_commit(identity.working_directory())
        if commit:
            known["commit"] = commit
    known |= {"host": identity.hostname(), "uid": os.geteuid(), "time": int(time.time()), "ondol": __version__}
    return known


def _git_commit(directory: str) -> str:
    import subprocess

    try:
        answer = subprocess.run(
            ["git", "-C", directory, "rev-parse", "HEAD"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
