"""Becomes a command for which chosen directories lie at fixed paths: the same on every machine and for every user.

    python -I -S enter_place.py try|run BASE COUNT (NAME SOURCE)… BLOCKED PROGRAM ARGV…

It makes a private mount namespace, in which BASE shows all that it shows outside and a directory `ondol` beside it,
with each SOURCE as NAME in it; then it turns into PROGRAM. No process stays in between, nothing changes outside the
namespace, and the namespace ends with its last process. `try` only says whether that can be done here.

A program of its own and not a function: a user namespace can only be entered by a process with one thread, and what is
mounted here must not be seen by Ondol itself. It imports nothing but the standard library, so that neither the user's
environment nor the current directory can change what it is. docs/design/fixed-paths.md says why it is done like this.
"""

import ctypes
import errno
import os
import signal
import stat
import sys
from collections.abc import Mapping, Sequence

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
#: Owned by whoever asks, never the real thing behind a link.
_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: What we call our mount, so that a job inside a job knows it.
NAME = "ondol"
#: More things than this in BASE are somebody's data, and each would have to be mounted.
_MOST_KEPT = 128
#: Settings by which administrators forbid it: file below /proc/sys → the value that forbids.
_FORBIDDING = {
    "user/max_user_namespaces": "0",
    "user/max_mnt_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}


class NotPossible(Exception):
    """It cannot be done here; the text says why."""


def main(words: Sequence[str]) -> int:
    mode, base, count, *rest = words
    pairs, (blocked, *command) = rest[: 2 * int(count)], rest[2 * int(count) :]
    places = dict(zip(pairs[::2], pairs[1::2], strict=True))
    try:
        enter(base, places)
    except NotPossible as refusal:
        if mode == "try":
            sys.stdout.write(str(refusal))
            return 1
        _stay_cold(base, places, str(refusal))
    return 0 if mode == "try" else become(command[0], command[1:], blocked)


def enter(base: str, places: Mapping[str, str]) -> None:
    """Give this process a mount namespace of its own, with the places in it. Raises `NotPossible`, half done."""
    if not os.path.isdir(base) or os.path.realpath(base) != base:
        raise NotPossible(f"there is no directory {base} to mount on")
    here = _directory()
    _leave_namespace()
    try:
        # Slave: what is mounted outside still arrives (automounted homes), what we mount never gets out.
        _mount(None, "/", None, _RECURSIVE | _SLAVE)
        sources = {name: os.open(source, _LOOK) for name, source in places.items()}
        _cover(base, sources)
        if here == base or here.startswith(base + "/"):
            os.chdir(here)  # the same directory, seen through the mounts that now lie over it
    except OSError as error:
        raise NotPossible(_because("mounting", error))


def _leave_namespace() -> None:
    try:
        _call("unshare", ctypes.c_int(_NEW_MOUNTS))
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EINVAL):
            raise NotPossible(_because("a mount namespace", error))
        _leave_user_namespace()


def _leave_user_namespace() -> None:
    """Without privileges: in a user namespace where this user is itself, and everybody else is nobody."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", ctypes.c_int(_NEW_USERS | _NEW_MOUNTS))
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(line)
    except OSError as error:
        raise NotPossible(_because("a user namespace", error))


def _cover(base: str, sources: Mapping[str, int]) -> None:
    """Put a small directory of our own over `base`, with everything in it that was there before."""
    nested = _is_ours(base)
    below = os.open(base, _LOOK)
    with os.scandir(base) as entries:
        before = [entry for entry in entries if not (nested and entry.name == NAME)]
    outer = set(os.listdir(f"{base}/{NAME}")) - set(sources) if nested else set()
    if any(entry.name == NAME for entry in before):
        raise NotPossible(f"{base}/{NAME} is there already and would be hidden")
    if len(before) > _MOST_KEPT:
        raise NotPossible(f"{base} has {len(before)} entries")
    mask = os.umask(0)
    try:
        _mount(NAME, base, "tmpfs", _NO_SUID | _NO_DEVICES, "mode=755")
        for entry in before:
            _keep(f"/proc/self/fd/{below}/{entry.name}", f"{base}/{entry.name}", entry)
        os.mkdir(f"{base}/{NAME}", 0o755)
        for name in outer:
            # A job inside a job: the caches of the outer one stay where its variables say they are.
            _bind(f"/proc/self/fd/{below}/{NAME}/{name}", f"{base}/{NAME}/{name}")
        for name, source in sources.items():
            _bind(f"/proc/self/fd/{source}", f"{base}/{NAME}/{name}")
        # What a command would make here goes away with the namespace: let it fail loudly instead.
        _mount(None, base, None, _REMOUNT | _BIND | _READ_ONLY | _NO_SUID | _NO_DEVICES)
    finally:
        os.umask(mask)


def _is_ours(base: str) -> bool:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        return any(line.split()[4] == base and f" - tmpfs {NAME} " in line for line in table)


def _keep(source: str, target: str, entry: os.DirEntry[str]) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(source), target)
    elif entry.is_dir(follow_symlinks=False):
        _bind(source, target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, stat.S_IRUSR))
        _mount(source, target, None, _BIND)


def _bind(source: str, target: str) -> None:
    os.mkdir(target, 0o755)
    _mount(source, target, None, _BIND | _RECURSIVE)


def _stay_cold(base: str, places: Mapping[str, str], why: str) -> None:
    """It worked a moment ago and does not now: an empty private directory instead of a path that is not there."""
    sys.stderr.write(f"ondol: warning: {', '.join(places)}: private and cold after all: {why}\n")
    for name, source in places.items():
        fixed, cold = f"{base}/{NAME}/{name}", f"{source}.cold"
        for variable, value in list(os.environ.items()):
            if value == fixed or value.startswith(fixed + "/"):
                os.environ[variable] = cold + value[len(fixed) :]
                os.makedirs(os.environ[variable], exist_ok=True)


def become(program: str, argv: Sequence[str], blocked: str) -> int:
    """Turn into the program, with signals as the caller had them; returns only if it cannot be executed."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores these for itself, and exec would pass that on
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, {int(number) for number in blocked.split(",") if number})
    try:
        os.execve(program, list(argv), os.environ)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without a #! line: a shell would run it with sh
            os.execve("/bin/sh", ["sh", program, *argv[1:]], os.environ)
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        hint = " (the interpreter in its first line?)" if missing else ""
        sys.stderr.write(f"ondol: {program}: {error.strerror}{hint}\n")
        return 127 if missing else 126


def _because(what: str, error: OSError) -> str:
    forbidding = [
        f"{name.replace('/', '.')} = {value}" for name, value in _FORBIDDING.items() if _setting(name) == value
    ]
    asked = ", ".join(forbidding) or "a container's seccomp profile or a security module, perhaps"
    allowed = error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS)
    place = f" {error.filename}" if error.filename else ""
    # For namespaces this error means a limit, and its usual words would send people to look at their disks.
    words = "the limit on them is reached" if error.errno == errno.ENOSPC else error.strerror
    return f"{what}: {words}{place}" + ("" if allowed else f" ({asked})")


def _setting(name: str) -> str:
    try:
        with open(f"/proc/sys/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # removed, or out of reach: then it is not below BASE, and stays as it is


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    _call("mount", words[0], words[1], words[2], ctypes.c_ulong(flags), words[3], about=target)


def _call(function: str, *words: object, about: str | None = None) -> None:
    """One of the C library's, which Python does not have."""
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*words):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
