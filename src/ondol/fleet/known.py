"""`ondol-known.toml`: tests that are known to fail, why, and until when. Pure.

The file is in the checkout, so a pull request can write it. It can only change what the verdicts of its own run count
for, which a pull request that removes the test can do too; `--no-known` does not read it.
"""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ondol.errors import UsageError
from ondol.fleet.journal import Known

FILE = "ondol-known.toml"
#: Bytes, entries.
LARGEST, MOST = 1 << 20, 500
_KEYS = {"test", "reason", "until"}
_HINT = '[[known]] with test = "tests/test_a.py::test_b*", reason = "…", until = 2030-12-31'


class KnownFailure(NamedTuple):
    #: A node id, or one with `*` and `?`; brackets mean themselves.
    test: str
    reason: str
    until: date

    def matches(self, nodeid: str) -> bool:
        return self.test == nodeid or fnmatchcase(nodeid, self.test.replace("[", "[[]"))

    def __str__(self) -> str:
        return f"{self.test} ({self.reason}; until {self.until})"


def entries(told: dict[str, Any]) -> list[KnownFailure]:
    """Out of the parsed file. Raises `UsageError`."""
    rows = told.get("known", [])
    if set(told) - {"known"} or not isinstance(rows, list) or len(rows) > MOST:
        raise UsageError(f"{FILE} must hold [[known]] tables, at most {MOST}, and nothing else", hint=_HINT)
    return [_entry(row, number) for number, row in enumerate(rows, 1)]


def _entry(row: Any, number: int) -> KnownFailure:
    given = set(row) if isinstance(row, dict) else set()
    if given != _KEYS:
        wrong = ", ".join(sorted(given ^ _KEYS))
        raise UsageError(
            f"{FILE}, entry {number}: each needs test, reason and until and nothing else; missing or unknown: {wrong}",
            hint=_HINT,
        )
    test, reason, until = row["test"], row["reason"], row["until"]
    if isinstance(until, str):
        try:
            until = date.fromisoformat(until)
        except ValueError:
            pass
    if not isinstance(until, date) or isinstance(until, datetime):
        raise UsageError(f"{FILE}, entry {number}: until = {row['until']!r} is not a date", hint="until = 2030-12-31")
    for name, value in (("test", test), ("reason", reason)):
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{FILE}, entry {number}: {name} = {value!r} is not a text", hint=_HINT)
    return KnownFailure(test, reason, until)


def judge(
    found: Sequence[KnownFailure],
    ids: Sequence[str],
    collected: Sequence[str],
    exists: Callable[[str], bool],
    today: date,
) -> tuple[Known, list[str]]:
    """What is muted among `ids`, which entries are past their date, and notes about those that match nothing.

    `collected`: also what was deselected. A file that this run is not about says nothing about its entries.
    """
    muted: dict[str, str] = {}
    expired, notes = [], []
    files = {nodeid.split("::")[0] for nodeid in collected}
    for entry in found:
        places = [place for place, nodeid in enumerate(ids) if entry.matches(nodeid)]
        if entry.until >= today:
            muted |= {str(place): f"{entry.reason}, until {entry.until}" for place in places}
        elif places:
            expired.append(f"{FILE}: {entry} is past its date")
        file = entry.test.split("::")[0]
        gone = "*" not in file and "?" not in file and not exists(file)
        if gone or (file in files and not any(map(entry.matches, collected))):
            notes.append(f"{FILE}: there is no test {entry.test}")
    return Known(muted, expired), notes
