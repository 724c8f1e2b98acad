"""The user behind the job: a name in the user database, which some libraries insist on."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

from ondol.doctor import installed, versions
from ondol.doctor.api import ERROR, NOTE, WARNING, Check, Finding, place
from ondol.doctor.subject import MACHINE, Subject

#: Where `getpass.getuser` looks before it asks the user database.
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


class User(Check):
    name = "user"
    summary = "a UID that the user database does not know, as in containers that run under any UID"
    roles = frozenset({MACHINE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        uid, env = subject.machine.uid, subject.machine.env
        if _is_known(uid):
            return
        where = place("/etc/passwd", os.stat("/etc/passwd") if os.path.exists("/etc/passwd") else None)
        what = f"uid {uid} has no entry in the user database"
        if any(env.get(name) for name in _NAMES):
            why = "programs that ask for it by number (ssh, some launchers) fail; those that read USER do not"
            yield Finding(self.name, NOTE, what, where, why, _entry(uid))
            return
        old = [
            one
            for one in installed.find(("torch",), env)
            if versions.release(one.version) < versions.TORCH_NEEDS_A_NAME_BEFORE
        ]
        why = "libraries that name a directory after the user fail with KeyError: getpwuid(): uid not found"
        if old:
            why += f"; torch {old[0].version}, which is installed, is one of them"
        fix = f"export USER=uid{uid} LOGNAME=uid{uid}"
        yield Finding(self.name, ERROR if old else WARNING, what, where, why, fix)


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _entry(uid: int) -> str:
    return f"echo 'ci:x:{uid}:{os.getegid()}::/tmp:/bin/sh' | sudo tee -a /etc/passwd"
