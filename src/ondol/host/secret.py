"""Take a secret out of the reach of the command that will run beside us, as the same user.

What holds on Linux: a process that is not *dumpable* shows its memory, its environment and its descriptors to nobody
without CAP_SYS_PTRACE, and leaves no core dump. What nobody can defend: a file that the user can open again, a copy in
another process of that user, a command that is (or can become) root. Those are refused, with what to do instead.
"""

import os
import stat
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from ondol.errors import OndolError
from ondol.foreign_text import is_number
from ondol.host import process, proctree

_MAX_BYTES = 4096
_PR_SET_DUMPABLE = 4
#: CAP_SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF: with one of these a command reads any memory.
_POWERS = sum(1 << number for number in (16, 17, 19, 21, 38, 39))


def take(source: str, env: dict[str, str], *, beside: bool) -> str:
    """The secret of `fd:N`, `env:NAME` or a file; gone from `env`, from our own environment, and from descriptor N.

    `beside`: a command of our own user will run beside us. Raises `OndolError` if it could have the secret too.
    """
    kind, _, name = source.partition(":")
    hidden = not beside or hide()
    if kind == "env":
        secret = env.pop(name, "") or os.environ.get(name, "")
        os.environ.pop(name, None)
        within_reach = "" if not beside else _who_gave_it()
    else:
        secret, within_reach = _from_file(source)
    if beside and secret and (secret in env.values() or process.mentioned(secret)):
        within_reach = "it is in the environment of a process of this user"
    if not hidden:
        within_reach = f"as uid {os.geteuid()} it has the power to read every process"
    if within_reach and beside:
        hint = "a job of an ordinary user, and --sign-key fd:3 with what that user cannot open: 3< <(sudo cat KEY)"
        raise OndolError("the command could read it", because=within_reach, hint=hint)
    return secret


def hide() -> bool:
    """From now on nobody of our user can look into this process, or into what is forked from it. False: they can."""
    if not proctree.prctl(_PR_SET_DUMPABLE, 0):
        return False
    lines = process.read("/proc/self/status").splitlines()
    sets = {line[:6]: int(line[8:], 16) for line in lines if line.startswith("Cap")}
    # What root starts has all that the bounding set leaves.
    powers = sets["CapBnd"] if os.geteuid() == 0 else sets["CapEff"] | sets["CapAmb"]
    return not powers & _POWERS


def _who_gave_it() -> str:
    """Whoever put it into our environment had it in memory; where Yama does not forbid that, the command can look."""
    above = os.getppid()
    while above:
        try:
            os.close(os.open(f"/proc/{above}/mem", os.O_RDONLY | os.O_CLOEXEC))
            return f"it came from process {above}, whose memory this user can read"
        except OSError:
            above = process.parent(above)
    return ""


def _from_file(source: str) -> tuple[str, str]:
    """(the secret, why the user could have it too)"""
    try:
        number = source.removeprefix("fd:")
        given = source.startswith("fd:") and is_number(number, 9) and int(number) > 2
        fd = int(number) if given else os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(fd)
        again = not given or status.st_uid == os.geteuid() or os.access(f"/proc/self/fd/{fd}", os.R_OK)
        again = again and stat.S_ISREG(status.st_mode) and status.st_nlink > 0
        data = b""
        while len(data) <= _MAX_BYTES and (piece := os.read(fd, _MAX_BYTES)):
            data += piece
        os.close(fd)  # the command would inherit it
    except OSError as error:
        raise OndolError("it cannot be read", because=error.strerror or str(error))
    return data.decode("ascii", "replace").strip(), "it is in a file that this user can open" if again else ""


class _OnlyWhatWasThere:
    """A command that cannot look into us could still write what we import next. It must not be able to."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.origin and _could_be_written(spec.origin):
            raise ImportError(f"{name} was not imported: the command could have changed {spec.origin}", name=name)
        return spec


def _could_be_written(path: str) -> bool:
    path, me = os.path.realpath(path), os.geteuid()
    places = [path, os.path.join(os.path.dirname(path), "__pycache__")]
    while path != "/":
        path = os.path.dirname(path)
        places.append(path)
    there = filter(os.path.exists, places)  # in `ondol.pyz` a module's path is no file
    return any(os.stat(place).st_uid == me or os.access(place, os.W_OK) for place in there)


def import_no_more() -> None:
    """Call when all that is needed is imported: what the command's user could have written is not imported any more."""
    sys.meta_path.insert(0, _OnlyWhatWasThere())
