"""`--retries`: a command that failed because of its cache runs once more, after the cache was mended.

Only for who asks. A command may have uploaded something before it failed, and to see why it failed its output must pass
through us; without the option neither is touched.
"""

from collections.abc import Callable
from functools import partial

from ondol import units
from ondol.explain import match, signature
from ondol.guard import guarded_command, healing
from ondol.guard.healing import HEALERS
from ondol.guard.lock import CacheLock
from ondol.host import command, files
from ondol.jobs.job import Job


def run(job: Job, on_end: Callable[[command.CommandEnded], None]) -> None:
    """As `ondol guard` does it."""
    signature.load()  # before the command, which may replace the very venv that we live in
    attempt = partial(guarded_command.run_captured, job.argv, job.env, on_end, job.report.warn, through=job.through)
    tell = job.report.remarks.append
    guarded_command.run_until_final(job.retries, attempt, partial(_mended, job), tell, lambda _otherwise, step: step())


def _mended(job: Job, tail: bytes) -> bool:
    """Whether the failure was a cache's and something was done about it."""
    if not guarded_command.may_be_the_cache(job.report.status):
        return False
    verdict = match.judge(tail.decode("utf-8", "replace"))
    if verdict.kind != "cache" or verdict.signature is None:
        return False
    family = verdict.signature.heals
    job.report.warn(f"a fault of the {family} cache ({verdict.signature.id}): {verdict.line.strip()[:200]}")
    if any(row.name == family for row in job.managed):
        _mend_room(job, family)
        return True
    return family in HEALERS and _mend_shared(job, family)


def _mend_room(job: Job, family: str) -> None:
    """What is torn goes; if all of it looks whole, the cache starts empty: nobody but this job has it to lose."""
    cache = job.open_room().cache_dir(family)
    report = healing.heal(family, healing.Unlocked(cache), job.show_progress)
    job.no_more_progress()
    if report.mended:
        taken = [one.path for one in report.taken if one.kept]
        job.report.remarks.append(f"{family}: {units.entries(len(taken))} set aside ({taken[0]} …)")
        return
    files.remove_tree(cache)
    job.open_room().make_cache_dir(family)
    job.forget(family)
    job.report.remarks.append(f"{family}: nothing in the cache is visibly torn; it starts anew, empty")


def _mend_shared(job: Job, family: str) -> bool:
    """A cache with its own protocol, which others use too: under its lock, as `ondol guard` does."""
    lock = CacheLock(HEALERS[family].usual_place(job.env), job.argv, job.report.warn, job.env)
    lock.acquire()
    try:
        report = healing.heal(family, lock, job.show_progress)
    finally:
        lock.release()
        job.no_more_progress()
    if report.mended:
        kept = sum(bool(one.kept) for one in report.taken)
        job.report.remarks.append(f"{family}: {units.entries(kept)} of {lock.cache} set aside, kept in {report.folder}")
    return report.mended
