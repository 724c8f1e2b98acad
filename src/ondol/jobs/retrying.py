"""`--retries`: a command that failed because of its cache runs once more, after the cache was mended.

Only for who asks. A command may have uploaded something before it failed, and to see why it failed its output must pass
through us; without the option neither is touched.
"""

from collections.abc import Callable

from ondol import exitcodes, units
from ondol.explain import match, signature
from ondol.guard import guarded_command, healing
from ondol.guard.healing import HEALERS
from ondol.guard.lock import CacheLock
from ondol.host import command, files, standard_input
from ondol.jobs.job import Job


def run(job: Job, on_end: Callable[[command.CommandEnded], None]) -> None:
    """Run the command until it ends otherwise than by a cache's fault, or the retries are used up."""
    signature.load()  # before the command, which may replace the very venv that we live in
    for left in range(job.retries, -1, -1):
        before = standard_input.look()
        tail = guarded_command.run_captured(job.argv, job.env, on_end, job.report.warn, through=job.through)
        if not left or not _mended(job, tail):
            return
        if not standard_input.rewind(before):
            job.report.remarks.append("not tried once more: the standard input has been read")
            return


def _mended(job: Job, tail: bytes) -> bool:
    """Whether the failure was a cache's and something was done about it."""
    if not 0 < job.report.status < exitcodes.from_signal(0):
        return False  # it succeeded, or was ended by a signal: neither says anything about a cache
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
        job.report.remarks.append(f"{family}: {units.entries(len(taken))} set aside ({taken[0]} …), tried once more")
        return
    files.remove_tree(cache)
    job.open_room().make_cache_dir(family)
    job.forget(family)
    job.report.remarks.append(f"{family}: nothing in the cache is visibly torn; tried once more with an empty one")


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
        job.report.remarks.append(
            f"{family}: {units.entries(kept)} of {lock.cache} set aside, kept in {report.folder}; tried once more"
        )
    return report.mended
