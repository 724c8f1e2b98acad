"""Somebody's first `--store DIR`: at a terminal it is offered, anywhere else nothing is asked and nothing is made."""

from __future__ import annotations

import os
import pty
import select
from pathlib import Path

import pytest

from people import Program

pytestmark = pytest.mark.warm

QUESTION = "[y/N]"


def at_a_terminal(program: Program, command: list[str], answer: str, **env: str) -> tuple[int, str]:
    """(status, what was shown), with this answer typed when we are asked."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            os.execve(program.python, [program.python, "-m", "ondol", *command], program.env(**env))
        finally:
            os._exit(99)
    shown, asked = b"", False
    while select.select([terminal], [], [], 60)[0]:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how a terminal ends
            break
        if not piece:
            break
        shown += piece
        if QUESTION.encode() in shown and not asked:
            asked = True
            os.write(terminal, f"{answer}\nfor the command\n".encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def run(store: Path, *options: str) -> list[str]:
    return ["run", "--store", str(store), "--tools", "triton", *options, "--", "/bin/sh", "-c", "read x && echo got $x"]


def test_yes_makes_the_store_and_takes_nothing_else_from_the_command(program: Program, tmp_path: Path) -> None:
    store = tmp_path / "deep" / "store"
    status, shown = at_a_terminal(program, run(store), "y")
    assert status == 0, shown
    assert "got for the command" in shown
    assert f"store made at {store}" in shown
    assert "warning" not in shown
    assert program.ondol("store", "stats", "--store", str(store)).returncode == 0
    assert QUESTION not in at_a_terminal(program, [*run(store)[:-1], "true"], "")[1]


@pytest.mark.parametrize("answer", ["", "n", "Never"])
def test_anything_but_yes_makes_nothing(program: Program, tmp_path: Path, answer: str) -> None:
    status, shown = at_a_terminal(program, run(tmp_path / "store"), answer)
    assert (status, "got for the command" in shown) == (0, True), shown
    assert f"running cold: no store at {tmp_path}/store" in shown
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("options", "env"), [((), {"CI": "true"}), (("--quiet",), {})], ids=["ci", "quiet"])
def test_nobody_is_asked_who_would_not_answer(
    program: Program, tmp_path: Path, options: tuple[str, ...], env: dict[str, str]
) -> None:
    command = [*run(tmp_path / "store", *options)[:-1], "true"]
    status, shown = at_a_terminal(program, command, "y", **env)
    assert (status, QUESTION in shown) == (0, False), shown
    assert f"fix: ondol store init {tmp_path}/store" in shown
    assert not (tmp_path / "store").exists()


def test_without_a_terminal_the_line_to_type_is_said(program: Program, tmp_path: Path) -> None:
    done = program.ondol(*[*run(tmp_path / "store")[:-1], "true"], input="y\n")
    assert (done.returncode, QUESTION in done.stderr) == (0, False)
    assert f"fix: ondol store init {tmp_path}/store" in done.stderr
    assert not (tmp_path / "store").exists()


def test_store_that_cannot_be_made_costs_the_job_nothing_but_warmth(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = tmp_path / "file" / "store"
    status, shown = at_a_terminal(program, run(store), "yes")
    assert (status, "got for the command" in shown) == (0, True), shown
    assert f"no store was made: cannot make a store at {store}: Not a directory (fix: name a dir" in shown
