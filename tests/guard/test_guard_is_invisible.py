"""Under `ondol guard` a command's streams, terminal, status and signals are its own, although its output is watched."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest


@pytest.fixture
def ondol(tmp_path: Path) -> list[str]:
    (tmp_path / "cache").mkdir()
    return [sys.executable, "-m", "ondol", "guard", "--cache", str(tmp_path / "cache"), "--"]


def run(ondol: list[str], *command: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*ondol, *command], capture_output=True, timeout=60, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("status", [0, 1, 2, 42, 66, 73, 124, 255])
def test_exit_status_is_the_commands_own(ondol: list[str], status: int) -> None:
    """66 and 73 are what flock(1) says of its own troubles; here they are the command's."""
    done = run(ondol, "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGPIPE])
def test_death_by_signal_is_told_as_a_shell_would(ondol: list[str], number: signal.Signals) -> None:
    assert run(ondol, "sh", "-c", f"kill -{number.value} $$").returncode == 128 + number


def test_a_missing_command_is_127_and_one_that_cannot_be_executed_126(ondol: list[str], tmp_path: Path) -> None:
    done = run(ondol, "no-such-command-anywhere")
    assert (done.returncode, done.stderr) == (127, b"ondol: no-such-command-anywhere: command not found\n")
    (tmp_path / "plain").write_text("")
    assert run(ondol, str(tmp_path / "plain")).returncode == 126


def test_output_passes_unchanged_and_whole(ondol: list[str]) -> None:
    """Far more than is kept of it, with every byte there is."""
    data = bytes(range(256)) * 8192
    done = run(ondol, "cat", input=data)
    assert done.stdout == data
    script = "import sys; sys.stderr.buffer.write(sys.stdin.buffer.read())"
    assert run(ondol, sys.executable, "-c", script, input=data).stderr == data


def test_order_of_the_two_streams_is_kept(ondol: list[str]) -> None:
    """`2>&1` in a CI log: a line on one stream must not overtake a line on the other."""
    script = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    done = subprocess.run(
        [*ondol, sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=True
    )
    assert done.stdout.split() == [b"%d" % number for number in range(2000)]


def test_output_is_seen_while_the_command_runs(ondol: list[str]) -> None:
    """What is written is seen while the command still runs, without a newline too."""
    with subprocess.Popen(
        [*ondol, "sh", "-c", "printf 'Proceed? '; read answer; echo got $answer"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        assert os.read(process.stdout.fileno(), 100) == b"Proceed? "
        process.stdin.write(b"yes\n")
        process.stdin.close()
        assert process.stdout.read() == b"got yes\n"


def test_reader_that_goes_away_is_noticed(ondol: list[str]) -> None:
    """`… | head -1`: the command ends by SIGPIPE, as it would without us, and not never."""
    script = f"{' '.join(ondol)} sh -c 'yes; echo $? >&2' | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[0] == "y"
    assert str(128 + signal.SIGPIPE) in done.stderr


def on_terminal(command: list[str], size: tuple[int, int] = (33, 111)) -> tuple[bytes, int]:
    """What a command writes on a terminal of its own, and its status."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    text = b""
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # EIO: closed by everybody
            break
        if not data:
            break
        text += data
    os.close(controller)
    return text, process.wait(timeout=60)


def test_terminal_stays_a_terminal(ondol: list[str]) -> None:
    """Colours, progress bars and their width are decided by that; and not a byte is changed on the way."""
    script = (
        "import os, sys\n"
        "assert all(os.isatty(fd) for fd in (0, 1, 2))\n"
        "print(*os.get_terminal_size(1))\n"
        "sys.stdout.write('\\033[31mred\\033[0m\\rback\\n')\n"
    )
    command = [sys.executable, "-c", script]
    assert on_terminal([*ondol, *command]) == on_terminal(command)


def test_mixed_streams_keep_their_kinds(ondol: list[str]) -> None:
    """`2> log` on a terminal: the one stays a terminal, the other does not become one."""
    controller, terminal = pty.openpty()
    script = "import os, sys; sys.exit(0 if (os.isatty(1), os.isatty(2)) == (True, False) else 9)"
    done = subprocess.run(
        [*ondol, sys.executable, "-c", script], stdout=terminal, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(controller)
    os.close(terminal)
    assert done.returncode == 0


def test_no_extra_descriptors_leak_into_the_command(ondol: list[str]) -> None:
    """Above all not the lock: whatever the command leaves behind would keep it."""
    script = "import os; print(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2))"
    expected = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert run(ondol, sys.executable, "-c", script).stdout == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_command(ondol: list[str], number: signal.Signals) -> None:
    """The command handles the signal itself, says its last words, and ends as it likes."""
    script = (
        "import signal, sys\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {{{number.value}}})\n"  # it may come before we wait for it
        "print('ready', flush=True)\n"
        f"signal.sigwait({{{number.value}}})\n"
        "print('last words', flush=True); sys.exit(77)\n"
    )
    process = subprocess.Popen([*ondol, sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.stdout.read() == "last words\n"
    assert process.wait(timeout=60) == 77
    process.stdout.close()


@pytest.mark.fault
def test_killed_guard_does_not_take_the_commands_output_with_it(ondol: list[str], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    script = f"echo before; cat {tmp_path}/go; echo after"
    process = subprocess.Popen([*ondol, "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "before\n"
    process.kill()
    process.wait(timeout=60)
    with (tmp_path / "go").open("w") as go:
        go.write("go\n")
    assert process.stdout.read() == "go\nafter\n"
    process.stdout.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_confuse_us(ondol: list[str], tmp_path: Path, closed: str) -> None:
    """A daemon may start a job with closed descriptors; the next file opened would take their numbers."""
    witness = tmp_path / "witness"
    script = f"{' '.join(ondol)} sh -c 'echo ran > {witness}'"
    done = subprocess.run(["sh", "-c", f"{script} {closed}; exit $?"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert witness.read_text() == "ran\n"


def test_own_words_are_never_on_stdout(ondol: list[str]) -> None:
    done = run([*ondol[:-1], "-v", "--"], "echo", "hello")
    assert done.stdout == b"hello\n"
    assert done.stderr.startswith(b"ondol: lock: flock on ")


def test_a_command_needs_no_dashes_before_it(ondol: list[str]) -> None:
    done = run(ondol[:-1], "--wait", "5s", "printf", "%s|", "--cache", "a b", "-v")
    assert done.stdout == b"--cache|a b|-v|"
