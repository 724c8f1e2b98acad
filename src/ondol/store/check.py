"""`ondol store verify`: read every pack, check every byte, set the bad ones aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ondol.errors import EntryUntrusted, PackError
from ondol.store import pack
from ondol.store.api import Backend, Stored


class PackFinding(NamedTuple):
    stored: Stored
    #: `corrupt`: the bytes are wrong. `unreadable`: they could not be had, which says nothing about them. `untrusted`:
    #: whole, and not to be used: not signed as the store demands, or revoked.
    kind: str
    why: str
    set_aside: bool


class Verified(NamedTuple):
    good: int
    good_bytes: int
    findings: list[PackFinding]


def verify(backend: Backend, progress: Callable[[int, int], None], *, keep: bool = False) -> Verified:
    """Check all packs of all lanes. With `keep`, bad ones are only reported."""
    everything = list(backend.everything())
    good = good_bytes = 0
    findings: list[PackFinding] = []
    for number, stored in enumerate(everything, start=1):
        finding = _check(backend, stored, keep)
        if finding:
            findings.append(finding)
        else:
            good += 1
            good_bytes += stored.size
        progress(number, len(everything))
    return Verified(good, good_bytes, findings)


def _check(backend: Backend, stored: Stored, keep: bool) -> PackFinding | None:
    try:
        backend.vet(stored, pack.check_files(backend.fetch(stored), stored.address))
    except EntryUntrusted as error:
        return PackFinding(stored, "untrusted", error.what, False)
    except PackError as error:
        return PackFinding(stored, "corrupt", error.line(), not keep and backend.set_aside(stored))
    except FileNotFoundError:
        return None  # cleaned away while we looked
    except OSError as error:
        return PackFinding(stored, "unreadable", error.strerror or str(error), False)
    return None
