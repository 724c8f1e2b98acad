"""Under `ondol run` a command's streams, terminal, status and signals are its own."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from people import Program


@pytest.fixture(params=["triton", "torch-extensions"])
def ondol(store_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """Started plainly, and by way of a mount namespace."""
    return [sys.executable, "-m", "ondol", "run", "--store", str(store_path), "--tools", request.param, "-q", "--"]


def run(ondol: list[str], *command: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*ondol, *command], capture_output=True, timeout=60, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("status", [0, 1, 2, 42, 122, 255])
def test_exit_status_is_the_commands_own(ondol: list[str], status: int) -> None:
    assert run(ondol, "sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGPIPE])
def test_death_by_signal_is_told_as_a_shell_would(ondol: list[str], number: signal.Signals) -> None:
    assert run(ondol, "sh", "-c", f"kill -{number.value} $$").returncode == 128 + number


def test_missing_command_and_its_status(ondol: list[str]) -> None:
    done = run(ondol, "no-such-command-anywhere")
    assert done.returncode == 127


def test_missing_command_is_named(program: Program, store_path: Path) -> None:
    done = program.ondol("run", "--store", str(store_path), "--", "no-such-command-anywhere")
    assert "no-such-command-anywhere: command not found" in done.stderr


def test_what_cannot_be_executed_is_126(ondol: list[str], tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    assert run(ondol, str(plain)).returncode == 126
    assert run(ondol, str(tmp_path)).returncode == 126


def test_script_without_interpreter_line_runs_with_sh(ondol: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo from the script; exit 3\n")
    script.chmod(0o755)
    done = run(ondol, str(script))
    assert (done.returncode, done.stdout) == (3, b"from the script\n")


def test_missing_interpreter_is_127(ondol: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert run(ondol, str(script)).returncode == 127


def test_streams_pass_untouched_binary_too(ondol: list[str]) -> None:
    data = bytes(range(256)) * 4096
    done = run(ondol, "cat", input=data)
    assert done.stdout == data
    assert done.stderr == b""


def test_own_words_are_never_on_stdout(program: Program, store_path: Path) -> None:
    """Everything Ondol says goes to stderr, so that a pipeline sees the command's output only."""
    done = program.ondol("run", "--store", str(store_path), "-v", "--", "echo", "hello")
    assert done.stdout == "hello\n"
    assert done.stderr.splitlines()[-1].startswith("ondol: nothing filled, nothing new [")


def test_arguments_and_options_of_the_command_are_its_own(ondol: list[str]) -> None:
    done = run(ondol, "printf", "%s|", "--store", "a b", "--", "-v", "")
    assert done.stdout == b"--store|a b|--|-v||"


def test_terminal_stays_a_terminal(ondol: list[str]) -> None:
    controller, terminal = pty.openpty()
    script = "import os,sys; sys.exit(0 if all(os.isatty(fd) for fd in (0, 1, 2)) else 9)"
    done = subprocess.run(
        [*ondol, sys.executable, "-c", script],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        timeout=60,
        check=False,
    )
    os.close(controller)
    os.close(terminal)
    assert done.returncode == 0


def test_no_extra_descriptors_leak_into_the_command(ondol: list[str]) -> None:
    script = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2))"
    expected = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert run(ondol, sys.executable, "-c", script).stdout == expected


def test_signal_settings_of_the_command_are_the_users(ondol: list[str]) -> None:
    """Python ignores SIGPIPE and we block signals; neither may reach the command."""
    command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    direct = subprocess.run(command, capture_output=True, check=True).stdout
    assert masks(run(ondol, *command).stdout) == masks(direct)


def masks(text: bytes) -> list[int]:
    # Signals 32 and 33 are the C library's own; its posix_spawn leaves them ignored, and its threads set them again.
    return [int(line.split()[1], 16) & 0x7FFFFFFF for line in text.decode().splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(ondol: list[str], tmp_path: Path, number: signal.Signals) -> None:
    """The command handles the signal itself and ends as it likes."""
    script = (
        "import signal, sys\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {{{number.value}}})\n"  # it may come before we wait for it
        "print('ready', flush=True)\n"
        f"sys.exit(77 if signal.sigwait({{{number.value}}}) else 1)\n"
    )
    process = subprocess.Popen([*ondol, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(timeout=60) == 77
    process.stdout.close()


def test_ctrl_c_is_delivered_once(ondol: list[str]) -> None:
    """The terminal already interrupts the command; forwarding as well would make a careful command give up at once."""
    controller, terminal = pty.openpty()
    script = (
        "import signal\n"
        "both = {signal.SIGINT, signal.SIGUSR1}\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, both)\n"  # one that comes before we wait for it is not lost
        "print('ready', flush=True)\n"
        "count = 0\n"
        "while signal.sigwait(both) == signal.SIGINT: count += 1\n"
        "print('hits', count, 'end', flush=True)\n"
    )
    process = subprocess.Popen(
        [*ondol, sys.executable, "-c", script],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads here
    )  # fmt: skip
    os.close(terminal)
    read_until(controller, b"ready")
    os.write(controller, b"\x03")
    read_until(controller, b"^C")
    # Forwarded after the interrupt, if that one were forwarded at all: lower numbers are taken first.
    process.send_signal(signal.SIGUSR1)
    text = read_until(controller, b"end")
    process.wait(timeout=60)
    os.close(controller)
    assert b"hits 1" in text


def read_until(fd: int, word: bytes) -> bytes:
    text = b""
    while word not in text:
        text += os.read(fd, 1000)
    return text


def test_no_room_is_left_behind_after_a_signal(store_path: Path, tmp_path: Path) -> None:
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    command = [sys.executable, "-m", "ondol", "run", "--store", str(store_path), "--room-dir", str(rooms), "-q", "--"]
    process = subprocess.Popen(
        [*command, "sh", "-c", "echo ready; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    assert len(list(rooms.iterdir())) == 1
    process.terminate()
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert list(rooms.iterdir()) == []
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_confuse_us(store_path: Path, tmp_path: Path, closed: str) -> None:
    """A daemon may start a job with closed descriptors; the next file opened would take their numbers."""
    witness = tmp_path / "witness"
    ondol = f"{sys.executable} -m ondol run --store {store_path} -- sh -c 'echo ran > {witness}; ls /proc/self/fd > {witness}.fds'"
    done = subprocess.run(["sh", "-c", f"{ondol} {closed}; exit $?"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert witness.read_text() == "ran\n"


def test_nobody_of_ours_is_left_when_the_command_line_returns(ondol: list[str]) -> None:
    """A script that unmounts the store, or counts processes, in its next line. Whoever outlives us becomes the child of
    the one who asked for it, as it becomes the child of a container's first process.
    """
    script = "\n".join(
        (
            "import os, subprocess, sys",
            "from ondol.host import proctree",
            "proctree.become_subreaper()",
            "for _ in range(5):",
            "    subprocess.run(sys.argv[1:])",
            "    left = proctree.children(os.getpid())",
            "    assert not left, [proctree.describe(pid) for pid in left]",
        )
    )
    done = subprocess.run([sys.executable, "-c", script, *ondol, "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
