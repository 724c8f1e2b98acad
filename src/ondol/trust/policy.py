"""May this job publish, and into which scope? A decision table; pure.

The rule behind it (CREEP, CVE-2025-36852): a job whose code is not yet trusted must never write what a trusted job
reads.
"""

from __future__ import annotations

from ondol.light import Record

#: The scope that every job reads and only trusted jobs write.
TRUSTED_SCOPE = "main"
POLICIES = ("never", "on-success", "auto")


class Event(Record):
    """What the CI system says about the job. `system` is empty off CI."""

    system: str
    #: push, pull_request, schedule, manual, …; the system's own word for what it does not know.
    kind: str
    trusted: bool
    #: Why it is (not) trusted, in words for the summary.
    because: str
    #: `pr-421` for a pull request with a number, else empty.
    own_scope: str = ""


def agreed(opened: Event, closed: Event) -> Event:
    """The event of a job whose room was opened in one process and closed in another.

    Whoever can change what the CI system seems to say between the two must gain nothing by it.
    """
    if opened == closed:
        return closed
    system = closed.system or opened.system
    return Event(system, "changed", False, "another event than when the room was opened")


class Scopes(Record):
    #: Tried in this order.
    read: tuple[str, ...]
    write: str


class Decision(Record):
    publish: bool
    because: str


def scopes(configured: str, event: Event) -> Scopes:
    """`auto`: a pull request has a scope of its own on top of the trusted one; everything else is the trusted one."""
    write = configured
    if configured == "auto":
        write = event.own_scope if event.own_scope and not event.trusted else TRUSTED_SCOPE
    return Scopes((write,) if write == TRUSTED_SCOPE else (write, TRUSTED_SCOPE), write)


def may_publish(policy: str, event: Event, write_scope: str, *, frozen: bool, status: int) -> Decision:
    if frozen:
        return Decision(False, "frozen")
    if policy == "never":
        return Decision(False, "publish = never")
    if status != 0:
        return Decision(False, f"the command ended with status {status}")
    if policy == "on-success":
        return Decision(True, "the command succeeded")
    if not event.system:
        return Decision(True, "the command succeeded, not on CI")
    if event.trusted:
        return Decision(True, f"{event.system}: {event.because}")
    if write_scope != TRUSTED_SCOPE:
        return Decision(True, f"{event.system}: {event.because}; into its own scope {write_scope}")
    return Decision(False, f"{event.system}: {event.because}, so the scope {TRUSTED_SCOPE} is not written")
