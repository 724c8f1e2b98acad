"""May this job publish, and into which scope? A decision table; pure.

The rule behind it (CREEP, CVE-2025-36852): a job whose code is not yet trusted must never write what a trusted job
reads. The event decides the most that a job can write; settings can only narrow it, because a pull request can edit
whatever settings come with its own code.
"""

import hashlib
from typing import NamedTuple

from ondol.foreign_text import is_number, is_plain_name

#: The scope that every job reads and only trusted jobs write. It carries no repository: who shares a store shares it.
TRUSTED_SCOPE = "main"
#: What begins like this was written by code that nobody has merged: `pr-7@github.com+acme+kernels`.
UNTRUSTED_PREFIX = "pr-"
_LONGEST_REPOSITORY = 120


class Event(NamedTuple):
    """What the CI system says about the job. `system` is empty off CI."""

    system: str
    #: push, pull_request, schedule, manual, …; the system's own word for what it does not know.
    kind: str
    trusted: bool
    #: Why it is (not) trusted, in words for the summary.
    because: str
    #: The scope of a pull request with a number and a repository, else empty.
    own_scope: str = ""
    #: What to type if the site trusts such jobs; empty where nothing should be typed.
    hint: str = ""


def agreed(opened: Event, closed: Event) -> Event:
    """The event of a job whose room was opened in one process and closed in another.

    Whoever can change what the CI system seems to say between the two must gain nothing by it.
    """
    if opened == closed:
        return closed
    system = closed.system or opened.system
    return Event(system, "changed", False, "another event than when the room was opened")


def pull_request_scope(number: str, repository: str) -> str:
    """`pr-7@github.com+acme+kernels`: pull request 7 of one repository is not that of another in the same store.

    Empty without a number or a repository: such a job writes nothing. `+` and `=` stand in no repository's name, so two
    of them never make one scope; one with other letters, or too long a name, is told apart by a digest.
    """
    if not (is_number(number) and repository):
        return ""
    carried = repository.replace("/", "+")
    if "+" in repository or "=" in repository or len(carried) > _LONGEST_REPOSITORY or not is_plain_name(carried):
        plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in repository)
        carried = f"{plain[:_LONGEST_REPOSITORY]}={hashlib.sha256(repository.encode()).hexdigest()[:32]}"
    return f"{UNTRUSTED_PREFIX}{number}@{carried}"


class Scopes(NamedTuple):
    #: Tried in this order.
    read: tuple[str, ...]
    #: Empty: this job writes nothing.
    write: str
    #: Why the configured scope is not the one that is written; empty if it is.
    passed_over: str = ""


class Decision(NamedTuple):
    publish: bool
    because: str


def scopes(configured: str, event: Event) -> Scopes:
    """A trusted job writes `main` or the scope it names; a pull request its own; all others nothing."""
    most = TRUSTED_SCOPE if event.trusted else event.own_scope
    if configured in ("auto", most):
        return _reading(most)
    # Off CI people may look into any scope; on CI a trusted job never reads what a pull request wrote.
    strange = bool(event.system) and configured.startswith(UNTRUSTED_PREFIX)
    if event.trusted and not strange:
        return _reading(configured)
    write = "" if event.trusted else most
    passed_over = "" if configured == most.partition("@")[0] else _passed_over(configured, event, write)
    return _reading(write, "" if strange else configured)._replace(passed_over=passed_over)


def _reading(write: str, also: str = "") -> Scopes:
    return Scopes(tuple(dict.fromkeys(name for name in (write, also, TRUSTED_SCOPE) if name)), write)


def _passed_over(configured: str, event: Event, write: str) -> str:
    instead = f"writes {write} only" if write else "writes no scope"
    return f"scope {configured} is not written: {event.system}: {event.because}; such a job {instead}"


def may_publish(policy: str, event: Event, write_scope: str, *, frozen: bool, status: int) -> Decision:
    if frozen:
        return Decision(False, "frozen")
    if policy == "never":
        return Decision(False, "publish = never")
    if not write_scope:
        return Decision(False, f"{event.system}: {event.because}")
    end = f"the command ended with status {status}"
    if policy == "on-success" and status:
        return Decision(False, f"on-success: {end}")
    # An entry is a compiler's output, whole or not: whether a test passed says nothing about it.
    where = f"{event.system}: {event.because}" if event.system else "not a CI job"
    into = "" if event.trusted else f"; into its own scope {write_scope}"
    return Decision(True, f"publish = {policy}; {where}{into}" + (f"; {end}" if status else ""))
