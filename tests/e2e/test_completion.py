"""The tab key, in real shells: `ondol completion bash | zsh | fish`."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol import options
from ondol.cli import completion, main
from ondol.room.handover import RUNTIMES

#: How each shell is started without anybody's files, and what it is told first.
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(ondol completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source <(ondol completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "ondol completion fish | source"),
}


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("sto", ["store"]),
        ("store wr", ["writers"]),
        ("store writers a", ["add"]),
        ("help sto", ["store"]),
        ("run --trito", ["--triton-autotune"]),
        ("run --no-fr", ["--no-frozen"]),
        ("run --publish ", ["auto", "never", "on-success"]),
        ("run --publish = nev", ["never"]),
        ("run --tools trit", ["triton"]),
        ("run --store ", []),
        ("run -- --tri", []),
        ("test --hyg", ["--hygiene"]),
        ("test --hygiene re", ["recycle", "report"]),
        ("doctor --fi", ["--fix"]),
        ("doctor --no-fi", []),
        ("completion ", ["bash", "fish", "zsh"]),
        ("nonsense --x", []),
    ],
)
def test_the_last_word_is_completed(typed: str, answer: list[str]) -> None:
    assert completion.candidates(typed.split(" ")) == answer


def test_every_command_is_offered() -> None:
    offered = {*completion.candidates([""]), *(f"store {name}" for name in completion.candidates(["store", ""]))}
    assert offered == {*main.COMMANDS, "help"}
    for command in main.COMMANDS:
        taken = {option.flag for option in options.of(command)}
        assert taken <= set(completion.candidates([*command.split(), "--"]))


def test_the_table_knows_every_runtime_of_containers() -> None:
    (row,) = [option for option in options.of("open") if option.name == "format"]
    assert row.metavar.split("|") == ["env", *RUNTIMES, "github", "json"]


@pytest.fixture
def typing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Terminal]:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed (tests/setup_machine.py)")
    here = tmp_path / "bin"
    here.mkdir()
    program = here / "ondol"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ondol "$@"\n')
    program.chmod(0o755)
    with Terminal(request.param, tmp_path, str(here)) as terminal:
        terminal.type(f"{terminal.first}; echo re''ady\n")
        terminal.read_until("ready")
        yield terminal


class Terminal:
    """A shell at a terminal, typed into."""

    def __init__(self, shell: str, home: Path, programs: str) -> None:
        self.command, self.first = SHELLS[shell]
        self.home = home
        self.env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(home), "TERM": "dumb"}
        self.env["XDG_CONFIG_HOME"] = self.env["XDG_DATA_HOME"] = str(home)

    def __enter__(self) -> Terminal:
        self.fd, other = pty.openpty()
        command = ["setsid", "--ctty", *self.command]  # fish wants a terminal of its own
        self.shell = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=self.env, cwd=self.home)
        os.close(other)
        return self

    def __exit__(self, *_: object) -> None:
        self.shell.kill()
        self.shell.wait()
        os.close(self.fd)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def read_until(self, text: str) -> None:
        seen = ""
        while text not in seen:
            assert select.select([self.fd], [], [], 120)[0], f"{text!r} never came: {seen!r}"
            try:
                more = os.read(self.fd, 4096)
            except OSError:
                more = b""
            assert more, f"the shell ended: {seen!r}"
            seen += more.decode(errors="replace")


@pytest.mark.parametrize("typing", SHELLS, indirect=True)
def test_a_shell_completes_what_is_typed(typing: Terminal) -> None:
    """The completed line is run, and its program tells what it was given."""
    tell = typing.home / "bin" / "ondol"
    tell.write_text(
        '#!/bin/sh\n[ "$1" = completion ] || { echo "GIVEN $*"; exit; }\n' + f'exec {sys.executable} -m ondol "$@"\n'
    )
    typing.type("ondol sto\tverify --ke\t\n")
    typing.read_until("GIVEN store verify --keep")
    typing.type("ondol run --publish nev\t-- --k\t\n")
    typing.read_until("GIVEN run --publish never -- --k")
