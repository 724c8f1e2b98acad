"""Says which entries were there and were not taken, and what to type: else a job is cold, and nobody knows why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ondol import words
from ondol.jobs.job import Job

if TYPE_CHECKING:
    from ondol.room.fill import BadPack

#: So many lines are enough; the rest is counted in one.
_LINES = 3
#: In the report for programs: a thousand users must not make it a book.
_MOST = 100


def strangers(job: Job, found: Sequence[tuple[int, str, int]]) -> None:
    """`found`: (owner of the lane, why, how many)."""
    found = sorted(found, key=lambda one: (-one[2], one[0]))
    job.report.passed_over = [{"owner": owner, "why": why, "entries": count} for owner, why, count in found[:_MOST]]
    look = f"`ondol doctor {job.store_path}`"
    told = [f"{words.entries(count)} of uid {owner} passed over: {why}; {look}" for owner, why, count in found[:_LINES]]
    if rest := found[_LINES:]:
        told.append(f"{words.entries(sum(one[2] for one in rest))} of {len(rest)} other users passed over; {look}")
    job.report.remarks += told


def untrusted(job: Job, tool: str, packs: Sequence[BadPack]) -> None:
    """Whole packs that must not be used: a line for each reason."""
    reasons: dict[str, list[BadPack]] = {}
    for pack in packs:
        reasons.setdefault(pack.why, []).append(pack)
    for why, some in list(reasons.items())[:_LINES]:
        said = f"{words.plural(len(some), f'{tool} pack')} in {job.store_path} passed over: {why} (fix: {some[0].fix})"
        # What the store's owner has taken back is no trouble.
        job.report.remarks.append(said) if why.startswith("revoked") else job.report.warn(said)
    if len(reasons) > _LINES:
        more = words.plural(len(reasons) - _LINES, "more reason")
        job.report.remarks.append(f"{tool} packs passed over for {more}; `ondol store verify --store {job.store_path}`")
