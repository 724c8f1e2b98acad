"""`ondol open` and `ondol close` from the tests, as any user, with any environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from handmade import trust_everybody
from ondol.room import room
from ondol.store import directory
from people import Program

PULL_REQUEST = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REPOSITORY": "acme/ops",
    "GITHUB_EVENT_NAME": "pull_request",
    "GITHUB_REF": "refs/pull/7/merge",
}
PULL_REQUEST_SCOPE = "pr-7@github.com+acme+ops"
#: A scheduled run of the default branch of a repository that is no fork.
NIGHTLY = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "schedule", "GITHUB_REPOSITORY": "acme/ops"}
NIGHTLY["GITHUB_EVENT_PATH"] = str(Path(__file__).parent / "nightly.json")


class Opened:
    """An open room and what it was opened with."""

    def __init__(self, program: Program, said: dict[str, Any], how: dict[str, Any]) -> None:
        self._program = program
        self._how = how
        self.path = Path(said["room"])
        self.inner = Path(said["mount"]["source"])
        self.seen_as = said["mount"]["target"]
        self.env: dict[str, str] = said["env"]
        self.filled = {name: tool["filled"] for name, tool in said["tools"].items()}

    def close(self, status: str = "0", *options: str, env: dict[str, str] | None = None, **how: Any) -> Closed:
        report = self.path.parent / f"report-{self.path.name}.json"
        words = ["close", str(self.path), "--status", status, "--json", str(report), *options]
        done = self._program.ondol(*words, env={**self._how.get("env", {}), **(env or {})}, **_who(self._how, how))
        return Closed(done, report)


class Closed:
    def __init__(self, done: subprocess.CompletedProcess[str], report: Path) -> None:
        self.status = done.returncode
        self.stdout, self.stderr = done.stdout, done.stderr
        self.report: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
        report.unlink(missing_ok=True)

    @property
    def triton(self) -> dict[str, Any]:
        return dict(self.report["tools"]["triton"])

    def __repr__(self) -> str:
        return f"Closed({self.status}, {self.stdout!r}, {self.stderr!r})"


def _who(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**first, **second}.items() if name != "env"}


def open_room(program: Program, store: Path, place: Path, *options: str, **how: Any) -> Opened:
    """A room opened with --format json; its rooms go into `place`."""
    words = ["open", "--store", str(store), "--tools", "triton", "--room-dir", str(place), "--format", "json", *options]
    done = program.ondol(*words, **how)
    assert done.returncode == 0, done.stderr
    return Opened(program, json.loads(done.stdout), how)


def standin(program: Program, *kernels: str) -> list[str]:
    return [program.python, str(program.programs / "standin.py"), *kernels]


def rooms_in(place: Path) -> list[str]:
    return [name for name in os.listdir(place) if name.startswith(room.PREFIX)]


def titles(store: Path, scope: str = "main") -> set[str]:
    """The names of what a store holds in a scope."""
    from ondol.store import pack

    opened = directory.DirectoryStore(str(store), trust_everybody)
    return {pack.decode(opened.fetch(s), s.address).title for s in opened.everything() if s.address.scope == scope}
