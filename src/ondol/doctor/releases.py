"""Releases of libraries that are known to harm shared caches, and which ones the interpreters at hand would import:
read from their metadata, nothing is imported.
"""

import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ondol.host.command import asked

Release = tuple[int, ...]


class BadRelease(NamedTuple):
    package: str
    #: The first bad release and the first good one after it.
    first: Release
    fixed: Release
    what: str
    why: str

    @property
    def wanted(self) -> str:
        return f"{self.package}>={'.'.join(map(str, self.fixed))}"


BAD = (
    BadRelease(
        "filelock",
        (3, 20, 4),
        (3, 29, 5),
        "gives one lock to two processes",
        "it removes the lock file when it lets go: two of Inductor's or FlashInfer's processes write one entry at once",
    ),
    BadRelease(
        "filelock",
        (0,),
        (3, 20, 3),
        "follows links that others planted (CVE-2025-68146, CVE-2026-22701)",
        "where others can write, a lock file can be made to truncate any file of this user",
    ),
    BadRelease(
        "triton",
        (0,),
        (3, 2, 0),
        "writes its cache without unique temporary names",
        "two jobs on one cache directory fail with FileNotFoundError while renaming",
    ),
)
#: Triton up to 3.7.1 takes an entry with a missing file for a hit.
TRITON_LAST_TO_CRASH: Release = (3, 7, 1)
#: torch before this asks the user database for a name, and fails if there is none.
TORCH_NEEDS_A_NAME_BEFORE: Release = (2, 13)


def release(version: str) -> Release:
    """`2.13.0rc1+cpu` → (2, 13, 0); empty for what is no version."""
    found = re.match(r"v?(?:\d+!)?(\d{1,9}(?:\.\d{1,9})*)", version.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def known_bad(package: str, version: str) -> Iterator[BadRelease]:
    number = release(version)
    for bad in BAD:
        if number and bad.package == package and bad.first <= number < bad.fixed:
            yield bad


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
        # What the interpreter itself says: shims, user sites and .pth files cannot be guessed from outside. A broken
        # one is the job's own trouble.
        said = "" if python == sys.executable else asked([python, "-c", _ASK], _SECONDS, env, "/")
        path = sys.path if python == sys.executable else [*filter(None, said.split("\n"))]
        for package in packages:
            for one in islice(importlib.metadata.distributions(name=package, path=path), 1):
                folder = str(one.locate_file(""))
                if (key := f"{package} {os.path.realpath(folder)}") not in seen:
                    seen.add(key)
                    yield Installed(package, one.version, python, folder)
