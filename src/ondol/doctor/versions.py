"""Releases of libraries that are known to harm shared caches, and how to tell them. Pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

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
