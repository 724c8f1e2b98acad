"""Names in temporary space that tools fix in advance, taken by another user.

The first user of a machine makes `/tmp/tvm-debug-mode-tempdirs`, and the second one's jobs fail; or somebody makes
`/tmp/torchinductor_ci` before ci does, and ci's jobs run what lies in it.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from itertools import islice

from ondol.doctor import commands
from ondol.doctor.api import ERROR, WARNING, Check, Finding, place
from ondol.doctor.subject import MACHINE, Subject
from ondol.words import plural

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


class Leftovers(Check):
    name = "leftovers"
    summary = "directories and lock files that tools use in temporary space, taken by another user"
    roles = frozenset({MACHINE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        env, uid = subject.machine.env, subject.machine.uid
        users = {env.get("LOGNAME"), env.get("USER"), _name(uid)} - {None, ""}
        personal = {
            pattern.format(user=user, uid=uid): tool for pattern, tool in _PERSONAL.items() for user in users or {""}
        }
        for folder in dict.fromkeys([env.get("TMPDIR") or "/tmp", "/tmp"]):
            if os.path.isdir(folder):
                yield from self._look(subject, os.path.realpath(folder), personal)

    def _look(self, subject: Subject, folder: str, personal: dict[str, str]) -> Iterator[Finding]:
        locks: list[tuple[str, os.stat_result]] = []
        me = subject.machine.uid
        with os.scandir(folder) as listing:
            for entry in islice(listing, _MOST):
                wanted = entry.name in personal or entry.name in _FIXED or entry.name.endswith(".lock")
                status = _lstat(entry.path) if wanted else None
                if status is None or status.st_uid == me:
                    continue
                if entry.name in personal:
                    yield self._trap(subject, entry.path, status, personal[entry.name])
                elif entry.name in _FIXED and not _usable(entry.path, status):
                    yield self._taken(subject, entry.path, status, *_FIXED[entry.name])
                elif entry.name.endswith(".lock") and _is_closed_file(entry.path, status):
                    locks.append((entry.path, status))
        if locks:
            path, status = locks[0]
            what = f"{plural(len(locks), 'lock file')} of other users in {folder} that uid {me} cannot open"
            why = "a tool that uses the same name for its lock fails, or waits for ever"
            fix = commands.as_root(me, f"rm {commands.paths(path for path, _ in locks[:20])}")
            yield Finding(self.name, WARNING, what, place(path, status), why, fix, len(locks))

    def _trap(self, subject: Subject, path: str, status: os.stat_result, tool: str) -> Finding:
        what = f"{path}, where {tool} keeps this user's compiled code, belongs to uid {status.st_uid}"
        why = "either jobs fail there, or they run what its owner puts there"
        return Finding(self.name, ERROR, what, place(path, status), why, _remove(subject, path))

    def _taken(self, subject: Subject, path: str, status: os.stat_result, tool: str, severity: str) -> Finding:
        what = f"{path} belongs to uid {status.st_uid}, and uid {subject.machine.uid} cannot write there"
        why = f"{tool} uses this very name for every user and fails with PermissionError; a TMPDIR of one's own helps"
        return Finding(self.name, severity, what, place(path, status), why, _remove(subject, path))


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None  # removed while we looked


def _usable(path: str, status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and os.access(path, os.W_OK | os.X_OK, effective_ids=True)


def _is_closed_file(path: str, status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and not os.access(path, os.W_OK, effective_ids=True)


def _remove(subject: Subject, path: str) -> str:
    return commands.as_root(subject.machine.uid, f"rm -r {commands.quote(path)}")


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
