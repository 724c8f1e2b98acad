"""One cache is used by one guarded command at a time, whoever comes from wherever; two caches never wait for each other."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from people import Program, needs_root
from uv_caches import Inside

pytestmark = pytest.mark.warm


def guard(program: Program, cache: Path | str, *options: str) -> list[str]:
    """On a cache that is there: one that is not is made by nobody but the command."""
    if not os.path.exists(cache):
        os.makedirs(cache)
        above = os.stat(os.path.dirname(cache))
        os.chown(cache, above.st_uid, above.st_gid)
    return [program.python, "-m", "ondol", "guard", "--cache", str(cache), *options, "--"]


def expect_turns(one: list[str], other: list[str], env: dict[str, str], others: dict[str, str] | None = None) -> str:
    """The second enters after the first has left, and not before. Returns what it says of the first."""
    with Inside(one, env=env) as first:
        first.entered()
        with Inside(other, env=others or env) as second:
            said = second.waits()
            first.leave()
            second.entered().leave()
    return said


def test_two_on_one_cache_take_turns(program: Program, tmp_path: Path) -> None:
    """C11; and C36: who waits is told for whom."""
    env = program.env(GITHUB_ACTIONS="true", GITHUB_JOB="gpu-acc", GITHUB_RUN_ID="17", RUNNER_NAME="login05-2")
    said = expect_turns(guard(program, tmp_path / "cache"), guard(program, tmp_path / "cache"), env)
    assert said.startswith(f"ondol: waiting for {tmp_path}/cache, held by pid ")
    assert f" on {os.uname().nodename} for " in said
    assert said.rstrip().endswith("[job gpu-acc, run 17, runner login05-2]")


def test_two_paths_to_one_cache_are_one_lock(program: Program, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "link").symlink_to("cache")
    expect_turns(guard(program, tmp_path / "cache"), guard(program, f"{tmp_path}/link/../link/."), program.env())


@pytest.mark.parametrize("tmpdir", ["missing", "file", "unwritable", "another"])
def test_tmpdir_does_not_decide_which_lock_it_is(program: Program, tmp_path: Path, tmpdir: str) -> None:
    """C17 to C19, C25, C30, and the worst: two jobs with two TMPDIRs that lock two files for one cache."""
    place = tmp_path / tmpdir
    if tmpdir == "file":
        place.write_text("")
    elif tmpdir != "missing":
        place.mkdir(mode=0o555 if tmpdir == "unwritable" else 0o755)
    env = program.env(TMPDIR=str(place))
    expect_turns(guard(program, tmp_path / "cache"), guard(program, tmp_path / "cache"), program.env(), env)


@needs_root
@pytest.mark.root
def test_two_users_on_one_cache(program: Program, public: Path) -> None:
    """The second may not create anything, beside or inside; it has no home and no name either."""
    home = public / "of-1500"
    home.mkdir(exist_ok=True)
    os.chown(home, 1500, 1500)
    cache = home / "cache"
    cache.mkdir(exist_ok=True)
    os.chown(cache, 1500, 1500)
    with Inside(guard(program, cache), env=program.env(), user=1500, group=1500, extra_groups=[]) as first:
        first.entered()
        env = {name: value for name, value in program.env().items() if name not in ("HOME", "USER")}
        other = Inside(guard(program, cache), env=env, user=1501, group=1501, extra_groups=[], cwd="/")
        with other as second:
            said = second.waits()
            first.leave()
            second.entered().leave()
    assert "held by pid" in said


@needs_root
@pytest.mark.root
def test_two_users_who_can_both_write(program: Program, public: Path) -> None:
    """umask 077 of the one must not keep the other out of the lock."""
    shared = public / "shared"
    shared.mkdir(exist_ok=True)
    shared.chmod(0o777)
    (shared / "cache").mkdir(exist_ok=True)
    (shared / "cache").chmod(0o777)
    with Inside(guard(program, shared / "cache"), env=program.env(), user=1500, group=1500, umask=0o077) as first:
        first.entered()
        with Inside(guard(program, shared / "cache"), env=program.env(), user=1501, group=1501, cwd="/") as second:
            said = second.waits()
            first.leave()
            second.entered().leave()
    assert "held by pid" in said


def test_two_caches_do_not_wait_for_each_other(program: Program, tmp_path: Path) -> None:
    """C23: both are inside at the same time, which is impossible if one waits for the other."""
    env = program.env(TMPDIR=str(tmp_path))
    with (
        Inside(guard(program, tmp_path / "one"), env=env) as first,
        Inside(guard(program, tmp_path / "two"), env=env) as second,
    ):
        first.entered()
        second.entered()
        assert first.leave() == second.leave() == ""


def test_shared_guards_do_not_wait_for_each_other(program: Program, tmp_path: Path) -> None:
    command = guard(program, tmp_path / "cache", "--shared")
    with Inside(command, env=program.env()) as first, Inside(command, env=program.env()) as second:
        first.entered()
        second.entered()
        with Inside(guard(program, tmp_path / "cache"), env=program.env()) as alone:
            alone.waits()
            first.leave()
            second.leave()
            alone.entered().leave()


def test_guard_inside_a_guard_does_not_wait_for_its_own_parent(program: Program, tmp_path: Path) -> None:
    """`make deps` may be guarded, and guard what it runs."""
    inner = guard(program, tmp_path / "cache", "--wait", "0s", "-v")
    done = subprocess.run(
        [*guard(program, tmp_path / "cache"), *inner, "echo", "done"],
        env=program.env(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "going on without" not in done.stderr
    assert "held by the guard around this one" in done.stderr


def test_variable_of_a_guard_that_is_over_is_not_believed(program: Program, tmp_path: Path) -> None:
    """A daemon that was started under a guard keeps its environment for ever."""
    variable = subprocess.run(
        [*guard(program, tmp_path / "cache"), "printenv", "ONDOL_GUARDED"],
        env=program.env(), capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    env = program.env(ONDOL_GUARDED=variable)
    expect_turns(guard(program, tmp_path / "cache"), guard(program, tmp_path / "cache"), program.env(), env)


@pytest.mark.fault
def test_killed_holder_does_not_keep_the_lock(program: Program, tmp_path: Path) -> None:
    with Inside(guard(program, tmp_path / "cache"), env=program.env()) as first:
        first.entered()
        with Inside(guard(program, tmp_path / "cache"), env=program.env()) as second:
            second.waits()
            first.process.send_signal(signal.SIGKILL)
            second.entered().leave()


def test_what_the_command_leaves_behind_does_not_keep_the_lock(program: Program, tmp_path: Path) -> None:
    """A compiler server that was started by the way runs on; its guard is over when the command is."""
    os.mkfifo(tmp_path / "fifo")
    behind = f"(exec 3<{tmp_path}/fifo; cat <&3; echo late) & echo started"
    process = subprocess.Popen(
        [*guard(program, tmp_path / "cache"), "sh", "-c", behind],
        env=program.env(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.wait(timeout=60) == 0
    done = subprocess.run(
        [*guard(program, tmp_path / "cache", "--wait", "0s"), "true"],
        env=program.env(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    with (tmp_path / "fifo").open("w") as fifo:
        fifo.write("still here\n")
    assert process.stdout.read() == "started\nstill here\nlate\n"
    process.stdout.close()


def test_waiting_ends_and_the_command_runs(program: Program, tmp_path: Path) -> None:
    """After --wait the command runs all the same; that is said, and is not its failure."""
    with Inside(guard(program, tmp_path / "cache"), env=program.env()) as first:
        first.entered()
        done = subprocess.run(
            [*guard(program, tmp_path / "cache", "--wait", "0.2s", "--json", str(tmp_path / "json")), "sh", "-c", "exit 5"],
            env=program.env(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        first.leave()
    assert done.returncode == 5
    assert done.stderr.startswith(f"ondol: warning: {tmp_path}/cache is still held by pid ")
    assert done.stderr.rstrip().endswith("after 0.20 s; going on without the lock")


def test_directory_that_is_cleaned_away_can_be_locked_again(program: Program, tmp_path: Path) -> None:
    """`uv cache clean` removes the directory. Who waited for the old one must not share the new one with a third."""
    cache = tmp_path / "cache"
    command = guard(program, cache)
    with Inside(command, env=program.env()) as first:
        first.entered()
        with Inside(command, env=program.env()) as second:
            second.waits()
            cache.rmdir()
            first.leave()
            second.entered()
            with Inside(command, env=program.env()) as third:
                third.waits()
                second.leave()
                third.entered().leave()


def test_lock_never_lets_two_in_on_this_machine(program: Program, tmp_path: Path) -> None:
    """C13: what the operator can run on the machine in question."""
    (tmp_path / "cache").mkdir()
    done = program.ondol("guard", "--cache", str(tmp_path / "cache"), "--selftest")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"lock: flock on {tmp_path}/cache\n")
    assert done.stdout.endswith("one at a time\n")
    assert list((tmp_path / "cache").iterdir()) == []
