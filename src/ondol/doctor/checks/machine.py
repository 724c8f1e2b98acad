"""The machine and the user's environment: home, temporary space, user database, libraries, a place for the room.

The first user of a machine makes `/tmp/tvm-debug-mode-tempdirs`, and the second one's jobs fail; or somebody makes
`/tmp/torchinductor_ci` before ci does, and ci's jobs run what lies in it.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice

from ondol.doctor import commands, releases, rights
from ondol.doctor.api import ERROR, NOTE, WARNING, Finding, Location, look, place
from ondol.doctor.subject import Subject
from ondol.errors import RoomError
from ondol.host import filesystem, identity
from ondol.room import room
from ondol.tools import registry, table
from ondol.units import plural


def home(subject: Subject) -> Iterator[Finding]:
    """A HOME that is not set, not there, not writable, or another user's."""
    me, env = subject.machine.uid, subject.machine.env
    path, source = env.get("HOME", ""), "HOME"
    if not path:
        account = identity.account(me)
        path, source = account.pw_dir if account else "", "the user database's home"
    if not path:
        what = "HOME is not set, and the user database knows none"
        why = "`~` stays `~`: tools make a directory of that name"
        yield Finding(_severity(env, ""), what, look("/"), why, _fix(me))
    elif trouble := _unusable(path):
        why = "tools that keep their cache there fail with PermissionError or FileNotFoundError"
        yield Finding(_severity(env, path), f"{source} is {path}, which {trouble}", look(path), why, _fix(me))
    elif (owner := os.stat(path).st_uid) != me:
        what = f"{source} is {path}, which belongs to uid {owner} and not to uid {me}"
        why = f"caches made there by this job belong to uid {me}, and later jobs of uid {owner} cannot write them"
        yield Finding(WARNING, what, look(path), why, _fix(me))


def _severity(env: Mapping[str, str], path: str) -> str:
    """An error if a tool would go there; whoever has set all the variables needs no home."""
    places = [table.default_location(row, env) for row in registry.everything()]
    below = path.rstrip("/") + "/"
    inside = [where for where in places if where and (where.startswith(below) or not os.path.isabs(where))]
    return ERROR if inside else WARNING


def _unusable(path: str) -> str:
    """Why nothing can be kept in this directory, or empty."""
    if not os.path.isabs(path):
        return "is not an absolute path"
    try:
        status = os.stat(path)
    except OSError as error:
        return f"cannot be used: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    return "" if os.access(path, os.W_OK | os.X_OK, effective_ids=True) else "is not writable"


def _fix(uid: int) -> str:
    home = commands.quote(f"/tmp/home-{uid}")
    return f"mkdir -pm 700 {home} && export HOME={home}"


#: In the order in which Python's tempfile asks.
VARIABLES = ("TMPDIR", "TEMP", "TMP")
#: A Unix socket's path has 108 bytes, and what is put below TMPDIR needs some of them.
_LONGEST = 80


def tmpdir(subject: Subject) -> Iterator[Finding]:
    """A TMPDIR that is missing, a file, unwritable, a foreign link, or open to all without the sticky bit."""
    env = subject.machine.env
    places = [(name, env[name], f"export {name}=/tmp") for name in VARIABLES if env.get(name)]
    if env.get("TMPDIR") not in ("/tmp", "/tmp/"):
        places.append(("the default", "/tmp", ""))
    for source, path, fix in places:
        what, why = _trouble(path, subject.machine.uid)
        if what:
            fix = subject.as_root("chmod 1777 /tmp") if path == "/tmp" else fix
            yield Finding(ERROR, f"{source} is {path}, which {what}", look(path), why, fix)
        elif len(os.fsencode(path)) > _LONGEST:
            what = f"{source} is {len(os.fsencode(path))} bytes long: {path}"
            why = "sockets of multiprocessing and of tool servers below it fail with `AF_UNIX path too long`"
            yield Finding(WARNING, what, look(path), why, fix)


def _trouble(path: str, me: int) -> tuple[str, str]:
    """(what is wrong, why that hurts), or two empty texts."""
    if what := _unusable(path):
        return what, "left over from an earlier job? Shells, compilers and lock files fail, some tools use /tmp instead"
    itself, status = os.lstat(path), os.stat(path)
    if stat.S_ISLNK(itself.st_mode) and itself.st_uid not in (0, me):
        return f"is a link of uid {itself.st_uid}", "its owner can point it elsewhere at any moment"
    if rights.sharing(status.st_mode) == rights.EVERYBODY:
        return "is open to all without the sticky bit", "every user can replace what a job puts there, code too"
    if status.st_uid not in (0, me):
        return f"belongs to uid {status.st_uid}", "its owner can replace what a job puts there, code too"
    return "", ""


def user(subject: Subject) -> Iterator[Finding]:
    """A UID that the user database does not know, as in containers that run under any UID."""
    uid, env = subject.machine.uid, subject.machine.env
    if identity.account(uid):
        return
    where, what = look("/etc/passwd"), f"uid {uid} has no entry in the user database"
    if any(env.get(name) for name in identity.NAMES):
        why = "programs that ask for it by number (ssh, some launchers) fail; those that read USER do not"
        fix = f"echo 'ci:x:{uid}:{os.getegid()}::/tmp:/bin/sh' | sudo tee -a /etc/passwd"
        yield Finding(NOTE, what, where, why, fix)
        return
    found = [one.version for one in releases.find(("torch",), env)]
    old = [version for version in found if releases.release(version) < releases.TORCH_NEEDS_A_NAME_BEFORE]
    why = "libraries that name a directory after the user fail with KeyError: getpwuid(): uid not found"
    if old:
        why += f"; torch {old[0]}, which is installed, is one of them"
    yield Finding(ERROR if old else WARNING, what, where, why, f"export USER=uid{uid} LOGNAME=uid{uid}")


#: The same name for every user → (whose it is, how bad). Held by one user, it keeps all others out.
_FIXED = {
    "tvm-debug-mode-tempdirs": ("TVM and TileLang", ERROR),
    "torch_extensions": ("torch's C++ extensions (old releases)", WARNING),
    "triton": ("Triton (old releases)", WARNING),
    "cupy_cache": ("CuPy (where it was told so)", WARNING),
}
#: With the user's name in it → whose it is. In other hands, it is a trap or the trace of a shared name.
_PERSONAL = {
    "torchinductor_{user}": "Inductor",
    "torchinductor_uid_{uid}": "Inductor",
    "uv-cache-{user}": "uv",
}
#: A directory with more names than this is looked at in part.
_MOST = 100_000


def leftovers(subject: Subject) -> Iterator[Finding]:
    """Directories and lock files that tools use in temporary space, taken by another user."""
    env, uid = subject.machine.env, subject.machine.uid
    account = identity.account(uid)
    users = {env.get("LOGNAME"), env.get("USER"), account.pw_name if account else ""} - {None, ""}
    personal = {
        pattern.format(user=name, uid=uid): tool for pattern, tool in _PERSONAL.items() for name in users or {""}
    }
    for folder in dict.fromkeys([env.get("TMPDIR") or "/tmp", "/tmp"]):
        if os.path.isdir(folder):
            yield from _left_in(subject, os.path.realpath(folder), personal)


def _left_in(subject: Subject, folder: str, personal: dict[str, str]) -> Iterator[Finding]:
    locks: list[tuple[str, os.stat_result]] = []
    me, wanted = subject.machine.uid, {*personal, *_FIXED}
    with os.scandir(folder) as listing:
        found = [one for one in islice(listing, _MOST) if one.name in wanted or one.name.endswith(".lock")]
    for entry in found:
        path, name = entry.path, entry.name
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # removed while we looked
        if status.st_uid == me:
            continue
        fix = subject.as_root(f"rm -r {commands.quote(path)}")
        usable = os.access(path, os.W_OK | (os.X_OK if name in _FIXED else 0), effective_ids=True)
        if name in personal:
            what = f"{path}, where {personal[name]} keeps this user's compiled code, belongs to uid {status.st_uid}"
            why = "either jobs fail there, or they run what its owner puts there"
            yield Finding(ERROR, what, place(path, status), why, fix)
        elif name in _FIXED and not (usable and stat.S_ISDIR(status.st_mode)):
            tool, severity = _FIXED[name]
            what = f"{path} belongs to uid {status.st_uid}, and uid {me} cannot write there"
            why = f"{tool} uses this very name for every user and fails with PermissionError; "
            yield Finding(severity, what, place(path, status), f"{why}a TMPDIR of one's own helps", fix)
        elif name.endswith(".lock") and stat.S_ISREG(status.st_mode) and not usable:
            locks.append((path, status))
    if locks:
        what = f"{plural(len(locks), 'lock file')} of other users in {folder} that uid {me} cannot open"
        why = "a tool that uses the same name for its lock fails, or waits for ever"
        fix = subject.as_root(f"rm {commands.paths(path for path, _ in locks[:20])}")
        yield Finding(WARNING, what, place(*locks[0]), why, fix, len(locks))


def libraries(subject: Subject) -> Iterator[Finding]:
    """Releases of filelock and Triton that are known to break shared caches, in the interpreters at hand."""
    packages = tuple(sorted({bad.package for bad in releases.BAD}))
    for one in releases.find(packages, subject.machine.env):
        for bad in releases.known_bad(one.package, one.version):
            what = f"{one.package} {one.version} {bad.what}"
            fix = f"{commands.quote(one.python)} -m pip install {commands.quote(bad.wanted)}"
            yield Finding(WARNING, what, look(one.folder), bad.why, fix)


def rooms(subject: Subject) -> Iterator[Finding]:
    """No local directory in which `ondol run` can make its private room, or not the one that was asked for."""
    fix = "ondol run --room-dir DIRECTORY -- COMMAND"
    try:
        choice, shown = room.choose_base(subject.machine.room_dir, subject.machine.env)
    except RoomError as error:
        why = "jobs run without a room: with the tools' own caches, as without Ondol"
        yield Finding(ERROR, f"{error.what}: {error.because}", Location("/tmp"), why, fix)
        return
    chosen = choice.candidate.path
    for passed, reason in choice.passed:
        if passed.source == "--room-dir" or filesystem.REPLACE in reason:
            what = f"{passed.source} {passed.path} cannot be used: {reason}"
            yield Finding(WARNING, what, look(passed.path), f"rooms are made in {chosen} instead", fix)
    if filesystem.is_network(filesystem.fs_type(chosen)):
        what = f"the only place for a room is {chosen}, on a network file system"
        yield Finding(WARNING, what, look(chosen), "filling and compiling there is slow", fix)
    if not shown.keeps_atime:
        what = f"reading a file in {chosen} does not move its access time (noatime?)"
        why = "`ondol run` cannot tell which entries were used; nothing else suffers"
        yield Finding(NOTE, what, look(chosen), why)
