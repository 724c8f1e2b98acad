"""The file operations that caches and the store are built from, each tried out: what fails, and what lies about it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from ondol.doctor.api import ERROR, WARNING, Check, Finding, look
from ondol.doctor.probing import ask_another_process, corner, name_of
from ondol.doctor.subject import CACHE, ROOM, STORE, TEMPORARY, Subject
from ondol.host import files


class Broken(Exception):
    """The operation succeeded and did not do what it promises."""


class Operations(Check):
    name = "operations"
    summary = "creating exclusively, renaming, hard-linking and syncing, tried out: what fails, and what lies about it"
    roles = frozenset({CACHE, STORE, TEMPORARY, ROOM})

    def run(self, subject: Subject) -> Iterator[Finding]:
        try:
            with corner(subject.real) as probe:
                troubles = [(step, _attempt(step, probe)) for step in _STEPS]
        except OSError:
            return  # nothing can be made there: other checks say so
        for step, trouble in troubles:
            if trouble:
                operation, why = _STEPS[step]
                needed = step is not _hard_link or STORE in subject.roles
                what = f"{operation} does not work in {subject.path}: {trouble}"
                yield Finding(self.name, ERROR if needed else WARNING, what, look(subject.path), why)


def _attempt(step: Callable[[str], None], probe: str) -> str:
    try:
        step(probe)
    except Broken as broken:
        return str(broken)
    except OSError as error:
        return name_of(error)
    return ""


def _new(probe: str, name: str, data: bytes = b"probe") -> str:
    path = os.path.join(probe, name)
    files.write_new(path, data, 0o600, sync=False)
    return path


def _exclusive(probe: str) -> None:
    path = _new(probe, "exclusive")
    try:
        files.write_new(path, b"again", 0o600, sync=False)
    except FileExistsError:
        return
    raise Broken("a name that is taken can be created again")


def _replace(probe: str) -> None:
    old, new = _new(probe, "old", b"old"), _new(probe, "new", b"new")
    os.rename(new, old)
    if files.read_regular(old, 64)[0] != b"new" or os.path.lexists(new):
        raise Broken("the old file is still there afterwards")


def _rename_directory(probe: str) -> None:
    for name in ("full", "other"):
        os.mkdir(os.path.join(probe, name))
        _new(os.path.join(probe, name), "file")
    try:
        os.rename(os.path.join(probe, "other"), os.path.join(probe, "full"))
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return
        raise
    raise Broken("a directory that is not empty is replaced")


def _hard_link(probe: str) -> None:
    source = _new(probe, "source")
    target = os.path.join(probe, "target")
    os.link(source, target)
    if os.stat(source).st_nlink != 2:
        raise Broken("the link count stays at one")
    try:
        os.link(_new(probe, "rival"), target)
    except FileExistsError:
        return
    raise Broken("a name that is taken can be linked to")  # seen on Lustre


def _sync(probe: str) -> None:
    files.write_new(os.path.join(probe, "synced"), b"probe", 0o600, sync=True)
    fd = files.open_dir(probe)
    try:
        files.fsync_dir(fd)
    finally:
        os.close(fd)


def _seen_at_once(probe: str) -> None:
    """By another process, the way a second job would look."""
    path = _new(probe, "visible", b"x" * 5000)
    if ask_another_process(lambda: int(files.read_regular(path, 1 << 16)[0] == b"x" * 5000)) != 1:
        raise Broken("another process does not see the file that was just written")


def _remove(probe: str) -> None:
    folder = os.path.join(probe, "folder")
    os.mkdir(folder)
    os.unlink(_new(folder, "file"))
    os.rmdir(folder)


#: What is tried → (what it is called, who suffers)
_STEPS: dict[Callable[[str], None], tuple[str, str]] = {
    _exclusive: ("creating a file exclusively (O_EXCL)", "locks and temporary names of all tools rest on it"),
    _replace: ("renaming a file over another", "every compile cache publishes its files that way"),
    _rename_directory: ("renaming a directory", "TileLang, DeepGEMM and Warp publish whole entries that way"),
    _hard_link: ("making a hard link", "the store publishes that way, and uv installs that way"),
    _sync: ("syncing a file (fsync)", "what was published may be lost or empty after a crash"),
    _seen_at_once: ("reading what was just written", "workers of one job share entries that way"),
    _remove: ("removing a file and its directory", "temporary files stay, and tools that tidy up fail"),
}
