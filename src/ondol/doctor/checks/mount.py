"""Whether files can be written, executed and loaded there, found out by doing it."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
from collections.abc import Iterator

from ondol.doctor import commands
from ondol.doctor.api import ERROR, NOTE, Check, Finding, look
from ondol.doctor.probing import corner
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY, Subject
from ondol.host import files


class Mount(Check):
    name = "mount"
    summary = "read-only mounts, and mounts on which nothing can be executed or loaded (noexec)"
    roles = frozenset({CACHE, STORE, TEMPORARY, ROOM, HOME})

    def run(self, subject: Subject) -> Iterator[Finding]:
        try:
            with corner(subject.real) as probe:
                refused = _try_to_execute(probe)
        except OSError as error:
            if error.errno == errno.EROFS:
                yield self._read_only(subject)
            return  # not permitted, or full: other checks say so, with what to do
        if refused and not subject.roles.isdisjoint({CACHE, TEMPORARY, ROOM}):
            what = f"nothing can be executed in {subject.path}: {refused}"
            why = "compiled kernels' helper libraries fail to load (`failed to map segment from shared object`)"
            point = commands.quote(subject.mount.point)
            fix = commands.as_root(subject.machine.uid, f"mount -o remount,exec {point}")
            yield Finding(self.name, ERROR, what, look(subject.path), why, fix)

    def _read_only(self, subject: Subject) -> Finding:
        point = commands.quote(subject.mount.point)
        fix = commands.as_root(subject.machine.uid, f"mount -o remount,rw {point}")
        what = f"{subject.path} is on a read-only file system"
        if subject.roles == {STORE}:
            why = "jobs can read the store and cannot publish; say --publish never if that is meant"
            return Finding(self.name, NOTE, what, look(subject.path), why, fix)
        why = "tools that have to compile something new fail there (Triton has no read-only mode)"
        return Finding(self.name, ERROR, what, look(subject.path), why, fix)


def _try_to_execute(probe: str) -> str:
    """What is refused: a program as ninja and pip start them, a mapping as dlopen makes it."""
    path = os.path.join(probe, "program")
    files.write_new(path, b"#!/bin/sh\nexit 0\n", 0o700, sync=False)
    refused = [what for what, attempt in (("start a program", _start), ("load a library", _load)) if not attempt(path)]
    return f"the kernel refuses to {' and to '.join(refused)} (noexec?)" if refused else ""


def _start(path: str) -> bool:
    try:
        subprocess.run([path], check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
    except PermissionError:
        return False
    except (OSError, subprocess.TimeoutExpired):
        pass  # no shell on this machine, or a busy one: says nothing about the mount
    return True


def _load(path: str) -> bool:
    fd = os.open(path, files.READ)
    try:
        mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    except PermissionError:
        return False
    finally:
        os.close(fd)
    return True
