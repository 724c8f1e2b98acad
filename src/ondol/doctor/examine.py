"""Carries the checks out: each subject's tree is walked once, everything that touches a file system has a deadline.

The walk and every check have a helper process of their own, because any of them may crash, or hang on a dead server,
even in a call that promises not to wait (flock over NFS).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ondol.doctor import gather, walk
from ondol.doctor.api import ERROR, NOTE, SEVERITIES, WARNING, Finding, Location
from ondol.doctor.commands import quote
from ondol.doctor.registry import CHECKS, Check
from ondol.doctor.subject import Subject
from ondol.errors import OndolError
from ondol.host import bounded

#: Under this name the walk itself has something to say.
WALK = "walk"
#: For a walk that has used up its time to notice that, and to tell what it saw.
_GRACE = 30.0
#: Of more stores below one directory, these are looked at.
_STORES = 16
#: (what is being done, done, total)
Progress = Callable[[str, int, int], None]


def examine(
    subjects: Sequence[Subject], checks: Sequence[Check], progress: Progress, patience: float | None = None
) -> list[Subject]:
    """These and the stores that were met below them, each with its findings.

    `patience`: seconds after which a check is given up, instead of each one's own.
    """
    queue = list(subjects)
    for subject in queue:
        _examine_one(subject, _for(subject, checks), progress, patience)
        known = {other.real for other in queue}
        # Ondol's stores that the walk met.
        met = [f"{subject.real}/{name}" for name in subject.tree.stores[:_STORES]] if subject.tree else []
        below = [path for path in met if path not in known]
        queue += gather.subjects(subject.machine, below, subject.bounds) if below else []
    return queue


def _for(subject: Subject, checks: Sequence[Check]) -> list[Check]:
    mine = [check for check in checks if check.roles & subject.roles]
    if subject.state.kind == "directory":
        return mine
    # Whatever else one might try there would meet the same wall, or hang on it. For a directory that the user named it
    # is reported also if it was not asked for: the checks that were have nothing to say, and that would read as health.
    reach = CHECKS["reach"]
    return [reach] if reach in mine or subject.named or subject.state.kind == "hangs" else []


def _examine_one(subject: Subject, checks: list[Check], progress: Progress, patience: float | None) -> None:
    findings: list[Finding] = []
    if any(check.walks for check in checks):
        # The checks' own processes are forked with what this one saw.
        walking = partial(walk.walk, subject.real, subject.bounds)
        subject.tree, findings = _in_helper(subject, WALK, walking, progress, subject.bounds.seconds + _GRACE)
        if tree := subject.tree:
            findings = _unseen(subject, tree)
    for check in checks:
        if subject.tree or not check.walks:
            work = partial(lambda check, _report: list(check.run(subject)), check)
            found, troubles = _in_helper(subject, check.name, work, progress, patience or check.seconds)
            findings += [finding._replace(check=check.name) for finding in found or troubles]
    order = list(SEVERITIES)
    subject.findings = sorted(findings, key=lambda finding: order.index(finding.severity))


def _in_helper(
    subject: Subject, name: str, work: Callable[[bounded.Report], Any], progress: Progress, seconds: float
) -> tuple[Any, list[Finding]]:
    """What the work brings home, or what it says that it does not."""
    verb = "looking at" if name == WALK else f"{name}:"
    doing = f"{verb} {subject.path}" if subject.path else name

    def carefully(report: bounded.Report) -> Any:
        try:
            return work(report)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise OndolError(f"{error.strerror or error}{where}")

    try:
        return bounded.call(carefully, seconds, partial(progress, doing)), []
    except bounded.TimedOut as error:
        severity, what = ERROR, f"the check {name!r} did not come back: {error.what}"
        why = "a job that does the same there hangs too; the file server may be dead, or overloaded"
    except OndolError as error:
        severity, what = WARNING, f"the check {name!r} could not be carried out: {error.line()}"
        why = "whether all is well there is not known"
    finally:
        progress(doing, 1, 1)  # whatever is drawn is taken off the screen before the next process is forked
    return None, [Finding(severity, what, subject.state.where, why, check=name)]


def _unseen(subject: Subject, tree: walk.Tree) -> list[Finding]:
    """What the walk did not see is reported: silence would read as health."""
    bounds = subject.bounds
    why = "a fault there is not in this report"
    findings = []
    if tree.stopped:
        what = f"the walk ended {tree.stopped}; what lies beyond was not looked at"
        fix = f"ondol doctor --limit {10 * bounds.entries} --walk-time {10 * bounds.seconds:g}s {quote(subject.path)}"
        findings.append(Finding(NOTE, what, subject.state.where, why, fix, check=WALK))
    if tree.unvisited:
        what = "other file systems, or directories that changed meanwhile, were not entered"
        where = Location(f"{tree.path}/{tree.unvisited[0]}")
        findings.append(Finding(NOTE, what, where, why, "", len(tree.unvisited), check=WALK))
    return findings
