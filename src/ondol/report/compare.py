"""Two runs side by side: what is newly broken, still broken, mended, slower, colder. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from ondol.fleet.past import Outcome, PastRun

#: Slower: by so much more, and by so many seconds, so that noise is not news.
FACTOR, SECONDS = 1.5, 0.5


class Comparison(NamedTuple):
    """Node ids, in the order of the run that they are of."""

    new_failures: list[str]
    #: Failed in both.
    known_failures: list[str]
    fixed: list[str]
    #: (node id, seconds before, seconds after), the largest loss first.
    slower: list[tuple[str, float, float]]
    #: Only in the later run, and only in the earlier one.
    added: list[str]
    gone: list[str]
    #: Entries compiled before and after, if there were more; None if there were not, or nobody counted.
    colder: tuple[int, int] | None


def compare(before: PastRun, after: PastRun) -> Comparison:
    both = [(nodeid, before.items[nodeid], now) for nodeid, now in after.items.items() if nodeid in before.items]
    failed = [nodeid for nodeid, now in after.items.items() if now.failed]
    known = {nodeid for nodeid, was in before.items.items() if was.failed}
    slower = [(nodeid, was.seconds, now.seconds) for nodeid, was, now in both if _slower(was, now)]
    colder = None
    if before.compiled is not None and after.compiled is not None and after.compiled > before.compiled:
        colder = before.compiled, after.compiled
    return Comparison(
        [nodeid for nodeid in failed if nodeid not in known],
        [nodeid for nodeid in failed if nodeid in known],
        [nodeid for nodeid, was, now in both if was.failed and not now.failed and not now.unknown],
        sorted(slower, key=lambda one: one[1] - one[2]),
        [nodeid for nodeid in after.items if nodeid not in before.items],
        [nodeid for nodeid in before.items if nodeid not in after.items],
        colder,
    )


def _slower(was: Outcome, now: Outcome) -> bool:
    ended = was.verdict == now.verdict == "passed"
    return ended and now.seconds > FACTOR * was.seconds and now.seconds - was.seconds > SECONDS


def lines(found: Comparison, most: int = 50) -> Iterator[str]:
    """For people; one line each."""
    parts = (
        ("new failure", found.new_failures),
        ("still fails", found.known_failures),
        ("fixed", found.fixed),
        ("slower", [f"{nodeid} ({was:.2f} s, now {now:.2f} s)" for nodeid, was, now in found.slower]),
        ("added", found.added),
        ("gone", found.gone),
    )
    yield ", ".join(f"{len(items)} {word}" for word, items in parts)
    for word, items in parts:
        yield from (f"{word}: {item}" for item in items[:most])
        if len(items) > most:
            yield f"{word}: and {len(items) - most} more"
    if found.colder:
        yield f"colder: {found.colder[0]} entries were compiled before, {found.colder[1]} now"
