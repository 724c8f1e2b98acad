"""What a compiler's command depends on outside its own directory, told apart by content and never by time.

Times cannot answer "is it the same": a checkout has today's, a container's layers have those of its build, and a file
that was filled into a room has whatever we gave it.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ondol.errors import EntryRefused

_MAX_BYTES = 1 << 30
#: Header directories of packages whose headers compilers do not list (`-isystem` with `-MMD`), and the file by which
#: one version of the package differs from another.
_PACKAGES = (
    (re.compile(r"(.*/torch)/include"), "version.py"),
    (re.compile(r"(.*/tvm_ffi)/include"), "_version.py"),
    (re.compile(r"(.*/flashinfer)/data/include"), "_build_meta.py"),
)


class FileState(NamedTuple):
    """A file as it is now."""

    sha256: str
    mtime: int
    #: When anything about it last changed: a time that nobody can set, unlike the one before.
    ctime: int


def look(path: str) -> FileState:
    """Raises `OSError` if it is not a plain file that can be read."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
        raise OSError(f"{path} is not a plain file, or has more than {_MAX_BYTES} bytes")
    times = status.st_mtime_ns, status.st_ctime_ns
    return FileState(_sha256(path, status.st_dev, status.st_ino, status.st_size, *times), *times)


def look_for(program: str) -> FileState:
    """The file that this name means on PATH, behind all links; `OSError` if there is none."""
    found = shutil.which(program)
    if found is None:
        raise OSError(f"{program} is not on PATH")
    return look(os.path.realpath(found))


@lru_cache(maxsize=1 << 16)  # every kernel of a library reads the same thousand headers
def _sha256(path: str, *_state: int) -> str:
    with open(path, "rb", opener=_open) as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _open(path: str, flags: int) -> int:
    # A FIFO in the place of a header, made after we looked, must not hang the job.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def needs(commands: Iterable[str]) -> tuple[set[str], set[str]]:
    """What these command lines read beside the inputs that ninja was told of: files, and programs by the names under
    which PATH has them. Raises `EntryRefused`.
    """
    files: set[str] = set()
    programs: set[str] = set()
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            raise EntryRefused(f"a command that no shell would take: {command[:80]}", because="unknown")
        programs |= _programs(words)
        files |= {word for word in words if os.path.isabs(word) and os.path.isfile(word)}
        files |= _package_versions(words) | _static_libraries(words)
    return files, programs


def _programs(words: list[str]) -> set[str]:
    """The compiler, with launchers before it (`ccache c++ -c …`), and the host compiler behind nvcc."""
    found: list[str] = []
    for word in words:
        if word.startswith(("-", "$")):
            break
        found.append(word)
    if any(os.path.basename(word) == "nvcc" for word in found):
        given = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-ccbin"]
        found += given or ["gcc"]
    return set(found)


def _package_versions(words: list[str]) -> set[str]:
    folders = [word.removeprefix("-I").removeprefix("-isystem") for word in words]
    matches = [(pattern.fullmatch(folder), name) for folder in folders for pattern, name in _PACKAGES]
    return {os.path.join(match[1], name) for match, name in matches if match}


def _static_libraries(words: list[str]) -> set[str]:
    """Archives become part of the result; shared libraries are found again when it is loaded."""
    folders = [word[2:] for word in words if word.startswith("-L")]
    names = [word[2:] for word in words if word.startswith("-l")]
    archives = [os.path.join(folder, f"lib{name}.a") for folder in folders for name in names]
    return {path for path in archives if os.path.isfile(path) and not os.path.exists(path[:-1] + "so")}
