"""Carries out repairs: exactly what was shown, on exactly what was looked at, and only on the caller's own files.

Between looking and mending, somebody who can write in the directory may put a link, or another file, under the same
name. So each path is opened component by component without following links, and what was opened must be the very
inode that was examined, of the caller's own. Root gets no more than that: whose files they are is not changed here.
"""

import errno
import os
import stat
from collections.abc import Sequence

from ondol.doctor import commands
from ondol.doctor.api import Repair
from ondol.errors import OndolError
from ondol.host import bounded, files

_THING = files.NAMES | os.O_NOFOLLOW


class NotMended(Exception):
    """What lies there now is not what may be mended."""


def as_command(repair: Repair) -> str:
    """The same as a person would type it."""
    if repair.action == "remove":
        return f"rm {commands.quote(repair.path)}"
    changes = [commands.bits(repair.add), commands.bits(repair.drop, "-")]
    return f"chmod {','.join(filter(None, changes))} {commands.quote(repair.path)}"


def carry_out(repairs: Sequence[Repair], seconds: float = 300.0) -> list[Repair]:
    """In a helper process: the file server may have died since we looked."""
    try:
        refusals = bounded.call(lambda _report: [_refusal(repair) for repair in repairs], seconds)
    except OndolError as error:
        refusals = [f"whether it was done is not known: {error.line()}"] * len(repairs)
    return [one._replace(done=not why, refused=why) for one, why in zip(repairs, refusals, strict=True)]


def _refusal(repair: Repair) -> str:
    try:
        with files.opened(files.open_way(os.path.dirname(repair.path))) as parent:
            name = os.path.basename(repair.path)
            if repair.action == "remove":
                _remove(repair, name, parent)
            else:
                _chmod(repair, name, parent)
    except NotMended as refusal:
        return str(refusal)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _check(repair: Repair, status: os.stat_result) -> None:
    if (status.st_dev, status.st_ino) != (repair.device, repair.inode):
        raise NotMended("something else has taken its name")
    if status.st_uid != os.geteuid():
        raise NotMended(f"it belongs to uid {status.st_uid}")
    if stat.S_ISREG(status.st_mode):
        if status.st_nlink > 1:
            # A hard link may have been put here by somebody else: what is opened here would be opened there too.
            raise NotMended("it has another name elsewhere")
    elif not stat.S_ISDIR(status.st_mode):
        raise NotMended("it is neither a file nor a directory")


def _check_private(repair: Repair, status: os.stat_result, parent: int) -> None:
    """A file of root's that is closed to others may have been moved here by who can write here, to have it opened."""
    above = os.fstat(parent)
    others = above.st_uid != 0 or above.st_mode & files.OTHERS_CAN_WRITE
    if os.geteuid() == 0 and stat.S_ISREG(status.st_mode) and repair.add & 0o077 and others:
        raise NotMended("it is root's, and others could have moved it here: look what it is before you open it")


def _chmod(repair: Repair, name: str, parent: int) -> None:
    with files.opened(os.open(name, _THING, dir_fd=parent)) as fd:
        status = os.fstat(fd)
        _check(repair, status)
        _check_private(repair, status, parent)
        before = stat.S_IMODE(status.st_mode)
        wanted = (before | repair.add) & ~repair.drop
        # Through /proc: the descriptor of a file that we may not even read can be used for nothing else.
        os.chmod(f"/proc/self/fd/{fd}", wanted)
        if stat.S_IMODE(os.fstat(fd).st_mode) != wanted:
            # The kernel drops setgid without a word for who is not in the group.
            os.chmod(f"/proc/self/fd/{fd}", before)
            raise NotMended("the kernel did not take the mode (not a member of the group?)")


def _remove(repair: Repair, name: str, parent: int) -> None:
    """Taken aside first, then looked at: a live process may replace a lock at this very moment by one that it holds."""
    aside = f".ondol-aside-{files.random_name()}"
    _check_removable(repair, os.stat(name, dir_fd=parent, follow_symlinks=False))
    os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
    try:
        _check_removable(repair, os.stat(aside, dir_fd=parent, follow_symlinks=False))
    except NotMended:
        _put_back(aside, name, parent)
        raise
    os.unlink(aside, dir_fd=parent)


def _check_removable(repair: Repair, status: os.stat_result) -> None:
    _check(repair, status)
    if not stat.S_ISREG(status.st_mode):
        raise NotMended("it is not a plain file")
    if status.st_mtime_ns != repair.written_ns:
        raise NotMended("something else has taken its name")


def _put_back(aside: str, name: str, parent: int) -> None:
    try:
        os.link(aside, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EEXIST:
            os.rename(aside, name, src_dir_fd=parent, dst_dir_fd=parent)
            return
    os.unlink(aside, dir_fd=parent)
