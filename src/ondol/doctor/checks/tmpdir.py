"""TMPDIR: stale on login nodes, a file by accident, or a trap that another user laid."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from ondol.doctor import commands, rights
from ondol.doctor.api import ERROR, WARNING, Check, Finding, look
from ondol.doctor.subject import MACHINE, Subject

#: In the order in which Python's tempfile asks.
VARIABLES = ("TMPDIR", "TEMP", "TMP")
#: A Unix socket's path has 108 bytes, and what is put below TMPDIR needs some of them.
_LONGEST = 80


class Tmpdir(Check):
    name = "tmpdir"
    summary = "a TMPDIR that is missing, a file, unwritable, a foreign link, or open to all without the sticky bit"
    roles = frozenset({MACHINE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        env, me = subject.machine.env, subject.machine.uid
        for name in VARIABLES:
            if env.get(name):
                yield from self._judge(subject, name, env[name], f"export {name}=/tmp")
        if env.get("TMPDIR") not in ("/tmp", "/tmp/"):
            yield from self._judge(subject, "the default", "/tmp", commands.as_root(me, "chmod 1777 /tmp"))

    def _judge(self, subject: Subject, source: str, path: str, fix: str) -> Iterator[Finding]:
        what, why = trouble(path, subject.machine.uid)
        if path == "/tmp" and what:
            fix = commands.as_root(subject.machine.uid, "chmod 1777 /tmp")
        if what:
            yield Finding(self.name, ERROR, f"{source} is {path}, which {what}", look(path), why, fix)
        elif len(os.fsencode(path)) > _LONGEST:
            what = f"{source} is {len(os.fsencode(path))} bytes long: {path}"
            why = "sockets of multiprocessing and of tool servers below it fail with `AF_UNIX path too long`"
            yield Finding(self.name, WARNING, what, look(path), why, fix)


def trouble(path: str, me: int) -> tuple[str, str]:
    """(what is wrong, why that hurts), or two empty texts."""
    fails = "shells, compilers and lock files fail there, some tools silently use /tmp instead"
    if not os.path.isabs(path):
        return "is not an absolute path", "each program means another directory by it"
    try:
        itself = os.lstat(path)
        status = os.stat(path)
    except OSError as error:
        return f"cannot be used: {error.strerror}", f"left over from an earlier job? {fails}"
    if stat.S_ISLNK(itself.st_mode) and itself.st_uid not in (0, me):
        return f"is a link of uid {itself.st_uid}", "its owner can point it elsewhere at any moment"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory", fails
    if not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        return "is not writable", fails
    if rights.sharing(status.st_mode) == rights.EVERYBODY:
        return "is open to all without the sticky bit", "every user can replace what a job puts there, code too"
    if status.st_uid not in (0, me):
        return f"belongs to uid {status.st_uid}", "its owner can replace what a job puts there, code too"
    return "", ""
