"""A real uv on a cache of its own, naked and guarded, and looking at what is in the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wheelhouse
from ondol.guard.lock import CacheLock
from people import ROOT, Program

PACKAGES = ("alpha", "beta", "gamma")
#: Variables of the machine that runs the tests.
_FOREIGN = ("UV_", "PIP_", "VIRTUAL_ENV", "XDG_", "PYTHON")
Done = subprocess.CompletedProcess[str]


def build(name: str) -> Path:
    path = ROOT / ".build" / name
    assert path.is_dir(), f"make test installs it; for pytest alone: make .build/{name}"
    return path


def clean_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}


class Uv:
    """A uv with its cache; and the same, guarded."""

    def __init__(self, program: Program, uv: Path, cache: Path, index: str, target: Path) -> None:
        self.program, self.uv, self.cache, self.index, self.target = program, uv, cache, index, target
        self._installs = 0

    def env(self, **more: str) -> dict[str, str]:
        return {
            **clean_environ(),
            **self.program.env(),
            "UV_CACHE_DIR": str(self.cache),
            "HOME": str(self.target),
            **more,
        }

    def words(self, *packages: str) -> list[str]:
        """The command that installs these, into a new directory."""
        self._installs += 1
        self.last = self.target / f"installed-{os.getpid()}-{self._installs}"
        options = ["--index-url", self.index, "--target", str(self.last), "--python", sys.executable]
        return [str(self.uv), "pip", "install", *options, *(packages or PACKAGES)]

    def guard(self, *options: str) -> list[str]:
        return [self.program.python, "-m", "ondol", "guard", *options, "--"]

    def run(
        self, command: list[str], env: dict[str, str] | None = None, uid: int | None = None, **options: Any
    ) -> Done:
        return self.program.run(command, uid, cwd=self.target, env=self.env(**(env or {})), timeout=120, **options)

    def naked(self, *packages: str, **how: Any) -> Done:
        return self.run(self.words(*packages), **how)

    def guarded(self, *packages: str, options: tuple[str, ...] = (), **how: Any) -> Done:
        return self.run([*self.guard(*options), *self.words(*packages)], **how)

    def works(self, *packages: str) -> bool:
        """Whether what was installed last can be imported whole."""
        script = "; ".join(f"import {name}; assert {name}.VALUE == {name!r}" for name in packages or PACKAGES)
        done = subprocess.run(
            [sys.executable, "-B", "-c", script], env={"PYTHONPATH": str(self.last)}, capture_output=True, check=False
        )
        return done.returncode == 0

    def link(self, package: str) -> Path:
        (found,) = self.cache.glob(f"wheels-v*/index/*/{package}/*1.0-py3-none-any")
        return found

    def archive(self, package: str) -> Path:
        return self.link(package).resolve()

    def entry(self, package: str) -> dict[str, tuple[int, int]]:
        """Every name of a package's entry, with inode and time of change."""
        paths = [*self.archive(package).rglob("*"), *self.link(package).parent.iterdir()]
        status = {path: path.lstat() for path in paths if path.suffix != ".lock"}
        return {str(path): (one.st_ino, one.st_mtime_ns) for path, one in status.items()}

    def set_aside(self) -> list[str]:
        """What was taken out of the cache, relative to it."""
        folders = [*self.cache.parent.glob(f".{self.cache.name}.ondol-aside-*/*"), *self.cache.glob(".ondol-aside-*/*")]
        found = [path.relative_to(folder) for folder in folders for path in _outermost(folder)]
        return sorted(str(path) for path in found)


def _outermost(folder: Path) -> Iterator[Path]:
    """What was moved, and not what lies in it: archives count as one."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if parts[0].startswith("archive-v"):
            if len(parts) == 2:
                yield path
        elif (path.is_symlink() or not path.is_dir()) and path.name != "WHAT-IS-THIS.txt":
            yield path


def warm(uv: Uv) -> Uv:
    done = uv.naked()
    assert done.returncode == 0, done.stderr
    return uv


def make_uv_cache(folder: Path) -> Path:
    """A cache of uv, made by hand: three wheels and what leads to them."""
    path = folder / "cache"
    for name in PACKAGES:
        archive = path / "archive-v0" / f"id-of-{name}"
        archive.mkdir(parents=True)
        with zipfile.ZipFile(wheelhouse.make_wheel(folder / "wheels", name)) as wheel:
            wheel.extractall(archive)
        leading = path / "wheels-v7" / "index" / "an-index" / name
        leading.mkdir(parents=True)
        (leading / "1.0-py3-none-any").symlink_to(f"../../../../archive-v0/{archive.name}")
        pointer = b"\x92" + bytes([0xA0 + len(archive.name)]) + archive.name.encode() + b"\x90"
        policy = b"a policy"
        (leading / "1.0-py3-none-any.http").write_bytes(pointer + policy + len(policy).to_bytes(8, "little"))
        (leading / "1.0-py3-none-any.msgpack").write_bytes(b"\xc0" + policy + (1).to_bytes(8, "little"))
    (path / ".lock").touch()
    return path


def a_lock(cache: Path, wait: float = 900.0) -> CacheLock:
    """The lock on a cache, taken if it can be."""
    lock = CacheLock(str(cache), ["a test"], lambda _: None, {}, wait=wait)
    lock.acquire()
    return lock


class Inside:
    """A guarded command that is in there, holding the lock, until it is told to leave."""

    SCRIPT = "import sys; print('inside', flush=True); sys.stdin.read()"

    def __init__(self, command: list[str], **how: Any) -> None:
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", self.SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **how,
        )
        # A lock that is never given back must fail the test, not hang it.
        self._limit = threading.Timer(240, self.process.kill)
        self._limit.start()

    def entered(self) -> Inside:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "inside\n", self.process.stderr and self.process.stderr.read()
        return self

    def waits(self) -> str:
        """Returns when it says that it must wait, and what it says: it has not entered then."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("ondol: waiting for "):
                return line
        raise AssertionError("it ended without waiting")

    def leave(self) -> str:
        """Its standard error, after it has ended well."""
        _, stderr = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, stderr
        return stderr

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.cancel()
        self._limit.join()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
