"""`pytest.mark.warm`: were a copied Ondol another one than a started one, hundreds of tests would prove nothing."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from people import Program, needs_root

pytestmark = pytest.mark.warm

#: Without SigQ: it counts the signals that wait for any process of the same user.
LOOK = """
id; umask; pwd; env | sort; ls -l /proc/self/fd; ulimit -a; grep -E '^(Sig[^Q]|Cap|Groups|NoNewPrivs|Seccomp)' /proc/self/status
stat -c '%U %a' /proc/$PPID/environ; ps -o pgid=,sess=,ni= -p $PPID; cat -; exit 7
"""


def said(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    """Without what differs from one job to the next."""
    names = r"ondol-room-\d+-\w+|(pipe:|/proc/)\[?\d+\]?|\d\d:\d\d|\d+\.\d+ s|^total.*"
    out, err = (re.sub(names, "…", text, flags=re.MULTILINE) for text in (done.stdout, done.stderr))
    return done.returncode, re.sub(r"(?<=^SigIgn:\t)\w+", without_the_librarys, out, flags=re.MULTILINE), err


def without_the_librarys(mask: re.Match[str]) -> str:
    """Signals 32 and 33 are the C library's own: make's children ignore them, until one of them starts a thread."""
    return f"{int(mask[0], 16) & ~(3 << 31):x}"


def both(program: Program, *words: str, **how: object) -> tuple[tuple[int, str, str], tuple[int, str, str]]:
    assert program.warm is not None
    warm, spent = program.warm, program.warm.spent
    copied = program.ondol(*words, **how)  # type: ignore[arg-type]
    assert warm.spent > spent, "it was a copy"
    program.warm = None
    started = program.ondol(*words, **how)  # type: ignore[arg-type]
    program.warm = warm
    return said(copied), said(started)


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [None, 2001])
def test_a_command_sees_no_difference(program: Program, public: Path, uid: int | None) -> None:
    env, limits = {"HOME": "/nonexistent", "ONDOL_TOOLS": "none"}, {resource.RLIMIT_NOFILE: 99, resource.RLIMIT_CORE: 0}
    words = ("run", "--", "sh", "-c", LOOK)
    copied, started = both(program, *words, uid=uid, umask=0o027, cwd=public, env=env, limits=limits)
    assert copied == started
    assert (copied[0], f"uid={uid or 0}" in copied[1], "0027" in copied[1]) == (7, True, True)


@pytest.mark.parametrize(
    "words", [("--version",), (), ("config",), ("sotre",), ("run", "--", "sh", "-c", "kill -9 $$"), ("store", "ls")]
)
def test_what_ondol_says_is_the_same(program: Program, tmp_path: Path, words: tuple[str, ...]) -> None:
    copied, started = both(program, *words, cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert copied == started


def test_what_python_reads_at_its_start_needs_a_start(program: Program) -> None:
    assert program.warm is not None
    spent = program.warm.spent
    for name in ("PYTHONPATH", "LC_ALL", "LD_PRELOAD"):
        program.ondol("--version", env={name: "/nonexistent"})
    assert program.warm.spent == spent


def test_many_at_once_do_not_mix_what_they_say(program: Program) -> None:
    def say(number: int) -> tuple[int, str]:
        done = program.ondol("run", "--tools", "none", "--", "sh", "-c", f"echo {number}; exit {number}")
        return done.returncode, done.stdout

    with ThreadPoolExecutor(4) as together:
        assert list(together.map(say, range(12))) == [(number, f"{number}\n") for number in range(12)]


def test_one_that_hangs_is_ended_in_time(program: Program, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    held = os.open(tmp_path / "never", os.O_RDWR)
    with pytest.raises(subprocess.TimeoutExpired):
        program.ondol("run", "--tools", "none", "--", "cat", str(tmp_path / "never"), timeout=0.5)
    os.close(held)  # the command ends too
