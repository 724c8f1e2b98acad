"""Every check, in the order in which they are shown. Explicit: a reader sees at once what is looked at.

A check looks at a subject. It changes nothing that it did not make itself, and leaves nothing behind. It runs in a
helper process with a deadline: one that crashes or hangs is reported and costs nobody else's findings.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ondol.doctor.api import Finding
from ondol.doctor.checks import contents, machine, sharing, stores, tried_out
from ondol.doctor.subject import CACHE, DIRECTORIES, HOME, MACHINE, ROOM, STORE, TEMPORARY, Subject
from ondol.errors import UsageError, did_you_mean


class Check(NamedTuple):
    #: What `--only` and `--skip` call it.
    name: str
    #: What is wrong; nothing if all is well. May raise: that is reported as the check's own failure.
    run: Callable[[Subject], Iterator[Finding]]
    #: The roles of subjects that it looks at.
    roles: frozenset[str]
    #: Whether it uses `subject.tree`: all that do share one walk.
    walks: bool = False
    #: Its deadline.
    seconds: float = 30.0
    #: What `--fix` may do about its findings, as a phrase; empty for nothing.
    fixes: str = ""

    @property
    def summary(self) -> str:
        """One line for `--list` and the reference page: the first of what `run` says about itself."""
        line = (self.run.__doc__ or "").partition("\n")[0].rstrip(".")
        return line[:1].lower() + line[1:]


_CACHE, _STORE, _MACHINE = frozenset({CACHE}), frozenset({STORE}), frozenset({MACHINE})
_MODES = "adds the missing bits for the owner, and for the group in a directory that a group shares"
_SETGID = "sets setgid on own directories of the sharing group"
_ORPHANS = "removes own lock files whose makers are certainly gone"
_OPENED = "takes the rights of others away in own stores and lanes, where they make readers pass entries over"
_ALL = (
    Check("reach", tried_out.reach, DIRECTORIES),
    Check("owners", sharing.owners, _CACHE, walks=True),
    Check("modes", sharing.modes, _CACHE, walks=True, fixes=_MODES),
    Check("setgid", sharing.setgid, _CACHE, walks=True, fixes=_SETGID),
    Check("acls", sharing.acls, _CACHE, walks=True),
    Check("world-writable", sharing.world_writable, _CACHE, walks=True),
    Check("orphans", contents.orphans, _CACHE, walks=True, fixes=_ORPHANS),
    Check("entries", contents.entries, _CACHE, walks=True, seconds=120.0),
    Check("mount", tried_out.mount, DIRECTORIES),
    Check("file-system", tried_out.file_system, DIRECTORIES),
    Check("locking", tried_out.locking, frozenset({CACHE, HOME, TEMPORARY})),
    Check("operations", tried_out.operations, frozenset({CACHE, STORE, TEMPORARY, ROOM})),
    Check("space", tried_out.space, DIRECTORIES),
    Check("clock", tried_out.clock, frozenset({CACHE, STORE})),
    Check("store", stores.store, _STORE, walks=True, fixes=_OPENED),
    Check("publishing", stores.publishing, _STORE, seconds=90.0),
    Check("tmpdir", machine.tmpdir, _MACHINE),
    Check("leftovers", machine.leftovers, _MACHINE),
    Check("user", machine.user, _MACHINE),
    Check("home", machine.home, _MACHINE),
    Check("libraries", machine.libraries, _MACHINE),
    Check("rooms", machine.rooms, _MACHINE),
)
CHECKS = {check.name: check for check in _ALL}


def choose(only: list[str], skip: list[str]) -> list[Check]:
    """All, or `only` these, without those to `skip`. Raises `UsageError` for a name that we do not know."""
    for name in [*only, *skip]:
        if name not in CHECKS:
            hint = did_you_mean(name, list(CHECKS), "ondol doctor --list")
            raise UsageError(f"there is no check {name!r}", hint=hint)
    return [check for name, check in CHECKS.items() if (not only or name in only) and name not in skip]
