"""The home directory, into which most tools put their caches unless they are told otherwise."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

from ondol.doctor import commands
from ondol.doctor.api import ERROR, WARNING, Check, Finding, look
from ondol.doctor.subject import MACHINE, Subject
from ondol.tools import registry, table


class Home(Check):
    name = "home"
    summary = "a HOME that is not set, not there, not writable, or another user's"
    roles = frozenset({MACHINE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        me, env = subject.machine.uid, subject.machine.env
        home = env.get("HOME", "")
        source = "HOME"
        if not home:
            home, source = _from_the_user_database(me), "the user database's home"
        if not home:
            what, why = (
                "HOME is not set, and the user database knows none",
                "`~` stays `~`: tools make a directory of that name",
            )
            yield Finding(self.name, self._severity(subject, ""), what, look("/"), why, _fix(me))
            return
        trouble = _trouble(home)
        if trouble:
            why = "tools that keep their cache there fail with PermissionError or FileNotFoundError"
            what = f"{source} is {home}, which {trouble}"
            yield Finding(self.name, self._severity(subject, home), what, look(home), why, _fix(me))
        elif (owner := os.stat(home).st_uid) != me:
            what = f"{source} is {home}, which belongs to uid {owner} and not to uid {me}"
            why = f"caches made there by this job belong to uid {me}, and later jobs of uid {owner} cannot write them"
            yield Finding(self.name, WARNING, what, look(home), why, _fix(me))

    @staticmethod
    def _severity(subject: Subject, home: str) -> str:
        """An error if a tool would go there; whoever has set all the variables needs no home."""
        places = [table.default_location(row, subject.machine.env) for row in registry.everything()]
        below = home.rstrip("/") + "/"
        inside = [where for where in places if where and (where.startswith(below) or not os.path.isabs(where))]
        return ERROR if inside else WARNING


def _trouble(home: str) -> str:
    if not os.path.isabs(home):
        return "is not an absolute path"
    if not os.path.lexists(home):
        return "is not there"
    if not os.path.isdir(home):
        return "is not a directory"
    return "" if os.access(home, os.W_OK | os.X_OK, effective_ids=True) else "is not writable"


def _from_the_user_database(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return ""


def _fix(uid: int) -> str:
    home = commands.quote(f"/tmp/home-{uid}")
    return f"mkdir -pm 700 {home} && export HOME={home}"
