"""A full disk, a quota, a broken disk, a stale handle, a read-only mount, a missing right: at every system call."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from faults import crash_points
from faults.crash_points import ANSWERED, CHANGING, LOOKING, Point
from faults.operations import BY_NAME, OPERATIONS, Operation, opened, packs
from faults.reader_view import store_violations, truth
from faults.strikes import error_violations
from handmade import make_entry
from ondol.store import marker

pytestmark = pytest.mark.fault

EVERY = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EACCES)
SHORT = ("create", "publish_first", "publish_taken", "publish_over_rotten", "set_aside")
LONG = ("note_use", "clean", "adopt", "fill", "room")
#: A lane of ours that we may not open is given up for a new one, where nothing is taken yet and nothing is rotten.
GIVEN_UP = {("publish_taken", errno.EACCES), ("publish_over_rotten", errno.EACCES)}


def _cases(names: tuple[str, ...]) -> list[object]:
    pairs = [(name, error) for name in names for error in EVERY if (name, error) not in GIVEN_UP]
    return [pytest.param(*pair, id=f"{pair[0]}-{errno.errorcode[pair[1]]}") for pair in pairs]


@pytest.mark.parametrize(("name", "error"), _cases(SHORT))
def test_error_in_any_call_is_refused_in_order(name: str, error: int, fast_place: Path) -> None:
    """Whatever call fails and however, the operation succeeds or refuses as its contract says, and can be repeated."""
    assert error_violations(BY_NAME[name], fast_place, "error", error, CHANGING + LOOKING) == []


@pytest.mark.parametrize(("name", "error"), _cases(LONG))
def test_error_in_any_change_is_refused_in_order(name: str, error: int, fast_place: Path) -> None:
    """The same for the calls that change something, in the longer operations."""
    assert error_violations(BY_NAME[name], fast_place, "error", error, CHANGING) == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_disk_that_stays_full_breaks_nothing(operation: Operation, fast_place: Path) -> None:
    """From some call on nothing more fits: what is published stays whole, and room made later is used."""
    assert error_violations(operation, fast_place, "full", errno.ENOSPC, CHANGING) == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_server_that_goes_away_breaks_nothing(operation: Operation, fast_place: Path) -> None:
    """From some call on every call fails: the operation refuses, and works again when the server is back."""
    assert error_violations(operation, fast_place, "gone", errno.ESTALE, CHANGING) == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_lost_reply_is_not_taken_for_a_failure(operation: Operation, fast_place: Path) -> None:
    """A call that was carried out and says that it failed (NFS) neither breaks nor blocks anything."""
    assert error_violations(operation, fast_place, "lost", errno.EIO, ANSWERED) == []


def test_link_whose_reply_is_lost_is_a_success(fast_place: Path) -> None:
    """The server made the link and its answer was lost: the pack is there, so the publisher is told so."""
    marker.create(str(fast_place / "store"), marker.Writers(), shared=True)
    entry = make_entry(1)

    def publish() -> list[bool]:
        with opened(fast_place) as store:
            return [outcome.new for outcome in store.publish(packs(entry))]

    ended = crash_points.run(publish, Point("lost", 1, errno.EIO, ("link",)))

    assert (ended.how, ended.value, ended.struck) == (crash_points.FINISHED, [True], "link")
    assert store_violations(fast_place / "store", truth([entry]), [entry.address]) == []
