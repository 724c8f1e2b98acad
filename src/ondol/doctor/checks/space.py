"""Room for what a job writes: bytes, inodes, and quotas, which only show when one writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from ondol import words
from ondol.doctor import commands
from ondol.doctor.api import ERROR, WARNING, Check, Finding, look
from ondol.doctor.probing import corner, name_of
from ondol.doctor.subject import CACHE, HOME, ROOM, STORE, TEMPORARY, Subject
from ondol.host import files, filesystem

#: A cold job with a few hundred kernels, or one C++ extension, writes this much.
ERROR_BYTES, WARNING_BYTES = 100 << 20, 2 << 30
#: Triton makes eight files for a kernel.
ERROR_INODES, WARNING_INODES = 1000, 20_000
#: What is reserved, and given back, to see whether a quota allows it.
_TRIAL_BYTES = 16 << 20
_TRIAL_FILES = 16


class Space(Check):
    name = "space"
    summary = "too little free space or too few free inodes, and quotas that are used up, tried out by reserving some"
    roles = frozenset({CACHE, STORE, TEMPORARY, ROOM, HOME})

    def run(self, subject: Subject) -> Iterator[Finding]:
        fd = os.open(subject.real, files.NAMES | os.O_DIRECTORY)
        try:
            free, inodes = filesystem.free_space(fd)
        finally:
            os.close(fd)
        why = "a job that compiles fails with ENOSPC, and half-written entries may stay"
        full = severity(free, ERROR_BYTES, WARNING_BYTES)
        if full:
            what = f"{words.size(free)} are free in {subject.path}"
            yield Finding(self.name, full, what, look(subject.path), why, _fix(subject))
        few = severity(inodes, ERROR_INODES, WARNING_INODES) if inodes >= 0 else ""
        if few:
            what = f"{words.plural(inodes, 'inode is', 'inodes are')} free in {subject.path}"
            yield Finding(self.name, few, what, look(subject.path), why, _fix(subject))
        if ERROR not in (full, few):
            yield from self._quota(subject)

    def _quota(self, subject: Subject) -> Iterator[Finding]:
        try:
            with corner(subject.real) as probe:
                _reserve(probe)
        except OSError as error:
            if error.errno not in (errno.EDQUOT, errno.ENOSPC, errno.EFBIG):
                return  # read-only, or not permitted: other checks say so
            what = f"{words.size(_TRIAL_BYTES)} cannot be reserved in {subject.path}: {name_of(error)}"
            why = f"the file system has space, and uid {subject.machine.uid} may not have it: a quota, or a limit"
            yield Finding(self.name, ERROR, what, look(subject.path), why, "quota -s")


def severity(left: int, error_below: int, warning_below: int) -> str:
    if left < error_below:
        return ERROR
    return WARNING if left < warning_below else ""


def _reserve(probe: str) -> None:
    for number in range(_TRIAL_FILES):
        os.close(os.open(os.path.join(probe, str(number)), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    fd = os.open(os.path.join(probe, "0"), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, _TRIAL_BYTES)
    finally:
        os.close(fd)


def _fix(subject: Subject) -> str:
    path = commands.quote(subject.path)
    if STORE in subject.roles:
        return f"ondol store gc --store {path} --min-free {words.size(WARNING_BYTES).replace(' ', '')}"
    return f"du -xhd 1 {path} | sort -h | tail"
