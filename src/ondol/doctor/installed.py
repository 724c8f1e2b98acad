"""Which versions of a package the interpreters at hand would import: read from their metadata, nothing is imported."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

_SECONDS = 15.0
_ASK = "import sys; print('\\n'.join(sys.path))"


class Installed(NamedTuple):
    package: str
    version: str
    #: The interpreter that would import it.
    python: str
    #: The directory that it lies in.
    folder: str


def interpreters(env: Mapping[str, str]) -> list[str]:
    """The one of the active virtual environment, those that PATH finds, and our own; each once."""
    offers = [os.path.join(env["VIRTUAL_ENV"], "bin", "python")] if env.get("VIRTUAL_ENV") else []
    offers += [shutil.which(name, path=env.get("PATH")) or "" for name in ("python", "python3")]
    return list(dict.fromkeys([*(offer for offer in offers if offer and os.path.exists(offer)), sys.executable]))


def find(packages: tuple[str, ...], env: Mapping[str, str]) -> Iterator[Installed]:
    """Each place once, with the first interpreter that looks there; only the first of several on one search path."""
    seen: set[str] = set()
    for python in interpreters(env):
        path = sys.path if python == sys.executable else _search_path(python, env)
        for package in packages:
            for one in islice(importlib.metadata.distributions(name=package, path=path), 1):
                folder = str(one.locate_file(""))
                if (key := f"{package} {os.path.realpath(folder)}") not in seen:
                    seen.add(key)
                    yield Installed(package, one.version, python, folder)


def _search_path(python: str, env: Mapping[str, str]) -> list[str]:
    """What the interpreter itself says: shims, user sites and .pth files cannot be guessed from outside."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, timeout=_SECONDS, check=False, env=dict(env), cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return []  # a broken interpreter is the job's own trouble
    return [line for line in done.stdout.splitlines() if line]
