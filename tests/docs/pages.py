"""The command blocks of a page, run as a reader would type them: in order, by an ordinary user of a clean machine.

A block's language says what becomes of it:

- `sh`: commands. Each must succeed, unless the line ends in `# status N`.
- `console`: commands after `$ `, and what they print. Each line that is shown must be printed, whatever its numbers.
- `sh not run: REASON`, `console not run: REASON`: shown only; the reason is for whoever reads the page's source.
- anything else (`yaml`, `toml`, `diff` …) is no command. A block without a language is an error.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from people import ROOT, Program

_BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
USER, NAME = 1000, "ci"
#: Where pages put what all jobs share. It exists for one page at a time, in a mount namespace of its own.
SHARED = Path("/ci-cache")


class Block(NamedTuple):
    language: str
    #: Why it is not run; empty if it is.
    excuse: str
    lines: list[str]

    @property
    def commands(self) -> list[str]:
        if self.language == "sh":
            return self.lines
        return [line[2:] for line in self.lines if line.startswith("$ ")]

    @property
    def shown(self) -> list[str]:
        """What a `console` block says that its commands print."""
        return [line for line in self.lines if not line.startswith("$ ")] if self.language == "console" else []


def blocks(page: Path) -> list[Block]:
    found = []
    for indent, words, body in _BLOCK.findall(page.read_text()):
        language, _, excuse = words.partition(" not run: ")
        found.append(Block(language, excuse, [line.removeprefix(indent) for line in body.splitlines()]))
    return found


class Reader:
    """A user with a home of his own, real sudo, and Ondol on the PATH; nothing of it is there afterwards."""

    def __init__(self, program: Program, place: Path) -> None:
        self.program, self.place = program, place
        (place / "home").mkdir()
        (place / "bin").mkdir()
        (place / "shared").mkdir()
        (place / "group").write_text(f"root:x:0:\n{NAME}:x:{USER}:\n")
        self.path = f"{place}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        ondol = f'#!/bin/sh\nPYTHONPATH={":".join(program.path)} exec {program.python} -m ondol "$@"\n'
        for name, text in {"ondol": ondol, "python": f'#!/bin/sh\nexec {program.python} "$@"\n'}.items():
            (place / "bin" / name).write_text(text)
            (place / "bin" / name).chmod(0o755)
        shutil.copy(ROOT / ".build" / "uv" / "bin" / "uv", place / "bin")
        (place / "passwd").write_text(f"root:x:0:0::/root:/bin/sh\n{NAME}:x:{USER}:{USER}::{place}/home:/bin/bash\n")
        (place / "shadow").write_text(f"root:*:19000::::::\n{NAME}:*:19000::::::\n")
        (place / "sudoers").write_text(
            f'Defaults secure_path="{self.path}"\nroot ALL=(ALL) ALL\n{NAME} ALL=(ALL) NOPASSWD: ALL\n'
        )
        (place / "sudoers").chmod(0o440)
        os.chown(place / "home", USER, USER)

    def reads(self, page: list[Block], **variables: str) -> subprocess.CompletedProcess[str]:
        """Type every command of the page; ends at the first that does not do what the page says."""
        script = self.place / "page.sh"
        script.write_text("\n".join(self._script(page)))
        made = not SHARED.exists()
        SHARED.mkdir(exist_ok=True)
        try:
            return subprocess.run(
                ["unshare", "--mount", "bash", "-eu", "-c", self._machine(script, variables)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=850,
                check=False,
            )
        finally:
            if made:
                SHARED.rmdir()

    def _machine(self, script: Path, variables: dict[str, str]) -> str:
        given = shlex.join(f"{name}={value}" for name, value in variables.items())
        return f"""
            mount --bind {self.place}/shared {SHARED}
            mount --bind {self.place}/group /etc/group
            mount --bind {self.place}/passwd /etc/passwd
            mount --bind {self.place}/shadow /etc/shadow
            mount --bind {self.place}/sudoers /etc/sudoers
            cd {self.place}/home
            exec setpriv --reuid {USER} --regid {USER} --clear-groups \\
              env -i HOME="$PWD" USER={NAME} LOGNAME={NAME} PATH={self.path} LANG=C.UTF-8 {given} bash -u {script}
        """

    def _script(self, page: list[Block]) -> list[str]:
        lines = []
        for number, block in enumerate(page):
            said = self._said(number)
            for path in (said, Path(f"{said}.one")):
                path.touch()
                path.chmod(0o666)
            for command in [] if block.excuse else _whole(block.commands):
                status = re.search(r"# status (\d+)$", command)
                expected = status[1] if status else "0"
                lines += [f"echo {shlex.quote('$ ' + command)}", f"{{\n{command}\n}} > {said}.one 2>&1"]
                lines += [f"status=$?; cat {said}.one; cat {said}.one >> {said}"]
                lines += [f'[ $status = {expected} ] || {{ echo "status $status instead of {expected}"; exit 99; }}']
        return lines

    def _said(self, number: int) -> Path:
        return self.place / f"said-{number}"

    def missing(self, page: list[Block]) -> list[str]:
        """What the page shows and no command has printed; numbers, and what stands for an ellipsis, do not count."""
        lost = []
        for number, block in enumerate(page):
            if block.excuse:
                continue
            printed = {_shape(line) for line in self._said(number).read_text().splitlines()}
            lost += [line for line in block.shown if not _is_there(_shape(line), printed)]
        return lost


def _whole(lines: list[str]) -> list[str]:
    """Commands that a backslash continues, as one."""
    return [line for line in "\n".join(lines).replace("\\\n", "\0").split("\n") if line.strip()]


def _shape(line: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", " ".join(line.split()))


def _is_there(shape: str, printed: set[str]) -> bool:
    pattern = ".*".join(map(re.escape, shape.split("…")))
    return not shape or any(re.fullmatch(pattern, line) for line in printed)


def checkout(place: Path) -> Path:
    """A clone of what is here, changes included, that everybody can read."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
    return place
