"""A job over several processes: what `ondol open` decided holds at `ondol close`, and nothing in the room can change it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ondol.host import process
from ondol.room import room
from people import Program
from walls.rooms import NIGHTLY, PULL_REQUEST, PULL_REQUEST_SCOPE, open_room, rooms_in, standin, titles

pytestmark = pytest.mark.warm


def use(program: Program, opened: Any, *kernels: str) -> dict[str, Any]:
    done = program.run(standin(program, *kernels), env=opened.env)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_room_over_several_processes_is_warm_the_second_time(program: Program, shared_store: Path, place: Path) -> None:
    first = open_room(program, shared_store, place)
    assert use(program, first, "one", "two")["compiled"] == 2
    closed = first.close()
    assert (closed.status, closed.triton["new"], closed.triton["published"]) == (0, 2, 2), closed
    second = open_room(program, shared_store, place)
    assert second.filled == {"triton": 2}
    assert use(program, second, "one", "two", "three")["hits"] == 2
    closed = second.close()
    assert (closed.triton["used"], closed.triton["new"], closed.triton["published"]) == (2, 1, 1), closed
    assert titles(shared_store) == {"one", "two", "three"}
    assert rooms_in(place) == []


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("folder", ["plain", "with space", "quote ' \" $HOME `id`", "star*"])
def test_path_with_odd_characters_does_not_break_the_shell(
    program: Program, shared_store: Path, place: Path, shell: str, folder: str
) -> None:
    base = place / folder
    base.mkdir()
    ondol = shlex.join([program.python, "-m", "ondol"])
    options = shlex.join(["--store", str(shared_store), "--tools", "triton", "--room-dir", str(base)])
    script = f"""
set -eu
eval "$({ondol} open {options})"
{shlex.join(standin(program, "one"))}
test -w "$TMPDIR"
rc=0; {ondol} close --status 0 || rc=$?
test ! -e "$ONDOL_ROOM"
exit $rc
"""
    done = program.run([shell, "-c", script])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cache"].startswith(str(base))
    assert titles(shared_store) == {"one"}


def test_word_that_a_shell_would_take_apart_is_refused_for_a_container(
    program: Program, shared_store: Path, place: Path
) -> None:
    """`docker run $(ondol open …)` takes no quotes out: what would need them is refused, and no room stays."""
    for folder in ("with space", "colon:", "comma,"):
        base = place / folder
        base.mkdir()
        done = program.ondol("open", "--store", str(shared_store), "--format", "docker", "--room-dir", str(base))
        assert done.returncode == 2, done
        assert done.stdout == ""
        assert rooms_in(base) == []


@pytest.mark.parametrize("runtime", ["docker", "podman", "apptainer", "enroot", "pyxis", "slurm"])
def test_every_mount_is_printed_with_its_mode_and_variables(
    program: Program, shared_store: Path, place: Path, runtime: str
) -> None:
    file = place / "room"
    options = ["--store", str(shared_store), "--tools", "triton", "--room-dir", str(place), "--room-file", str(file)]
    done = program.ondol("open", *options, "--format", runtime)
    assert done.returncode == 0, done.stderr
    path = file.read_text().strip()
    words = done.stdout.split()
    assert words == shlex.split(done.stdout)
    expected = {
        "docker": ["--volume", f"{path}/inside:/ondol/room:rw"],
        "podman": ["--volume", f"{path}/inside:/ondol/room:rw"],
        "apptainer": ["--bind", f"{path}/inside:/ondol/room:rw"],
        "enroot": ["--mount", f"{path}/inside:/ondol/room:none:x-create=dir,bind,rw"],
        "pyxis": [
            f"--container-mounts={path}/inside:/ondol/room:rw",
            "--container-env=TMPDIR,ONDOL_ROOM,TRITON_CACHE_DIR",
        ],
        "slurm": [],
    }[runtime]
    assert words[: len(expected)] == expected
    seen = f"{path}/inside" if runtime == "slurm" else "/ondol/room"
    assert f"TRITON_CACHE_DIR={seen}/cache/triton" in done.stdout
    assert f"TMPDIR={seen}/tmp" in done.stdout
    assert program.ondol("close", path, "--status", "0").returncode == 0


def test_users_own_variable_decides_where_it_is_not_inherited(
    program: Program, shared_store: Path, place: Path
) -> None:
    """TRITON_CACHE_DIR of this machine is not set in a docker container; under Slurm it is."""
    options = ("open", "--store", str(shared_store), "--room-dir", str(place), "--tools", "auto", "--format")
    env = {"TRITON_CACHE_DIR": "/mine"}
    assert "TRITON_CACHE_DIR=/ondol/room" in program.ondol(*options, "docker", env=env).stdout
    assert "TRITON_CACHE_DIR" not in program.ondol(*options, "pyxis", env=env).stdout


@pytest.mark.parametrize("rule", ["auto", "on-success"])
def test_what_a_failed_or_cancelled_job_made_goes_by_the_rule(
    program: Program, shared_store: Path, place: Path, rule: str
) -> None:
    gives = rule == "auto"
    for status, shown in (("1", 1), ("137", 137), ("failure", 0), ("cancelled", 0)):
        opened = open_room(program, shared_store, place)
        use(program, opened, f"kernel-{status}")
        closed = opened.close(status, "--publish", rule)
        assert (closed.status, closed.report["publish"], closed.triton["published"]) == (shown, gives, gives), closed
    assert len(titles(shared_store)) == 4 * gives
    assert rooms_in(place) == []


def test_room_that_is_not_there_does_not_fail_the_job(program: Program, shared_store: Path, place: Path) -> None:
    """Closed twice, swept, never opened: the job may be long over, and keeps its status."""
    opened = open_room(program, shared_store, place)
    assert opened.close().status == 0
    for status, shown in (("0", 0), ("3", 3), ("success", 0)):
        again = opened.close(status)
        assert (again.status, "nothing was harvested" in again.stderr) == (shown, True), again
    assert opened.close("0", "--strict").status == 123
    assert program.ondol("close", "/etc", "--status", "0").returncode == 0
    assert program.ondol("close", "--status", "0").returncode == 2  # nobody said which
    assert program.ondol("close", str(opened.path)).returncode == 2  # nobody said how it ended


def test_machine_without_a_place_for_a_room_does_not_fail_the_job(program: Program, shared_store: Path) -> None:
    code = """
import sys
from ondol.host import filesystem
filesystem.try_directory = lambda path: filesystem.Usable("no")
from ondol.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    arguments = ["open", "--store", str(shared_store), "--format", "docker"]
    done = program.run([program.python, "-c", code, *arguments])
    assert (done.returncode, done.stdout) == (0, "")
    assert "running without a room" in done.stderr
    done = program.run([program.python, "-c", code, *arguments, "--strict"])
    assert (done.returncode, done.stdout) == (123, "")


def test_store_that_is_not_there_does_not_fail_the_open(program: Program, place: Path) -> None:
    opened = open_room(program, place / "no-store", place)
    assert use(program, opened, "one")["compiled"] == 1
    closed = opened.close()
    assert closed.status == 0
    assert "running cold" in closed.stderr


def test_pull_request_does_not_publish_for_everybody(program: Program, shared_store: Path, place: Path) -> None:
    opened = open_room(program, shared_store, place, env=PULL_REQUEST)
    use(program, opened, "one")
    opened.close()
    assert (titles(shared_store), titles(shared_store, PULL_REQUEST_SCOPE)) == (set(), {"one"})


@pytest.mark.parametrize(
    ("first", "then"),
    [(PULL_REQUEST, NIGHTLY), (NIGHTLY, PULL_REQUEST), (PULL_REQUEST, {**PULL_REQUEST, "GITHUB_ACTIONS": ""})],
)
def test_event_that_changes_on_the_way_is_not_believed(
    program: Program, shared_store: Path, place: Path, first: dict[str, str], then: dict[str, str]
) -> None:
    """Whoever can set variables for later steps must gain nothing by it."""
    opened = open_room(program, shared_store, place, env=first)
    use(program, opened, "one")
    closed = opened.close(env=then)
    assert not closed.report["publish"], closed
    assert "another event" in closed.report["publish_decision"]
    assert titles(shared_store) | titles(shared_store, PULL_REQUEST_SCOPE) == set()


def test_variables_that_a_step_sets_do_not_decide_about_publishing(
    program: Program, shared_store: Path, place: Path
) -> None:
    """ONDOL_PUBLISH, ONDOL_SCOPE and ONDOL_STORE of a job's own step come too late."""
    other = place / "other"
    assert program.ondol("store", "init", str(other)).returncode == 0
    opened = open_room(program, shared_store, place, "--publish", "never")
    use(program, opened, "one")
    late = {"ONDOL_PUBLISH": "on-success", "ONDOL_SCOPE": "main", "ONDOL_STORE": str(other), "ONDOL_TRUST": "1"}
    closed = opened.close(env=late)
    assert closed.report["publish_decision"] == "publish = never"
    assert titles(shared_store) | titles(other) == set()


def test_command_line_of_close_has_no_say(program: Program, shared_store: Path, place: Path) -> None:
    opened = open_room(program, shared_store, place, "--publish", "never")
    use(program, opened, "one")
    assert opened.close("0", "--publish", "on-success").triton["published"] == 1


def test_warmth_that_was_asked_for_is_checked(program: Program, shared_store: Path, place: Path) -> None:
    opened = open_room(program, shared_store, place, "--require-warm")
    use(program, opened, "one")
    assert opened.close().status == 122


def test_open_room_is_not_swept_by_the_next_job(program: Program, shared_store: Path, place: Path) -> None:
    """Its opener is dead by design. It stays for days, unless the machine was started anew; then it goes."""
    opened = open_room(program, shared_store, place)
    (opened.inner / "tmp" / "work").write_text("unfinished")
    program.job(shared_store, "other", options=("--room-dir", str(place)))
    assert (opened.inner / "tmp" / "work").exists()
    old = time.time() - room.OPEN_AGE - 60
    os.utime(opened.path / room.OPEN, (old, old))
    program.job(shared_store, "other", options=("--room-dir", str(place)))
    assert not opened.path.exists()


def test_old_room_with_somebody_in_it_is_not_swept(program: Program, shared_store: Path, place: Path) -> None:
    opened = open_room(program, shared_store, place)
    old = time.time() - room.OPEN_AGE - 60
    os.utime(opened.path / room.OPEN, (old, old))
    # It says when it is there: nobody can see the environment of a program that is just being loaded.
    inhabitant = subprocess.Popen(
        ["sh", "-c", "echo in; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**program.env(), **opened.env},
    )
    assert inhabitant.stdout is not None
    try:
        assert inhabitant.stdout.readline() == b"in\n"
        room.sweep(str(place))
        assert opened.path.exists()
    finally:
        inhabitant.stdin.close()  # type: ignore[union-attr]
        inhabitant.stdout.close()
        inhabitant.wait()
    room.sweep(str(place))
    assert not opened.path.exists()


def test_room_of_before_the_reboot_is_swept(program: Program, shared_store: Path, place: Path) -> None:
    opened = open_room(program, shared_store, place)
    owner = process.Owner.decode((opened.path / room.OPENER).read_bytes())
    assert owner
    (opened.path / room.OPENER).write_bytes(owner._replace(boot="another-boot").encode())
    room.sweep(str(place))
    assert not opened.path.exists()


def test_room_of_a_close_that_was_killed_is_swept(program: Program, shared_store: Path, place: Path) -> None:
    opened = open_room(program, shared_store, place)
    use(program, opened, "one")
    code = """
import os, signal, sys
from ondol.jobs import after
after.conclude = lambda job: os.kill(os.getpid(), signal.SIGKILL)
from ondol.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    done = program.run([program.python, "-c", code, "close", str(opened.path), "--status", "0"])
    assert done.returncode == -9
    assert opened.path.exists()
    room.sweep(str(place))
    assert not opened.path.exists()


def test_github_step_gets_variables_and_gives_them_back(program: Program, shared_store: Path, place: Path) -> None:
    """TMPDIR of the steps after close must not lead to a directory that is gone."""
    files = {name: str(place / name) for name in ("GITHUB_ENV", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    env = {**NIGHTLY, **files, "TRITON_CACHE_DIR": "/mine"}
    options = ["--store", str(shared_store), "--tools", "triton", "--room-dir", str(place), "--format", "github"]
    assert program.ondol("open", *options, env=env).returncode == 0
    variables = dict(line.split("=", 1) for line in (place / "GITHUB_ENV").read_text().splitlines())
    outputs = dict(line.split("=", 1) for line in (place / "GITHUB_OUTPUT").read_text().splitlines())
    assert program.run(standin(program, "one"), env=variables).returncode == 0
    done = program.ondol("close", outputs["room"], "--status", "success", "--format", "github", env=env)
    assert done.returncode == 0, done.stderr
    after = dict(line.split("=", 1) for line in (place / "GITHUB_ENV").read_text().splitlines())
    assert after["TMPDIR"] == after["ONDOL_ROOM"] == ""
    assert after["TRITON_CACHE_DIR"] == "/mine"
    assert "| triton | 0 | 0 | 1 | 1 |" in (place / "GITHUB_STEP_SUMMARY").read_text()
    done = program.ondol("open", *options, env={"GITHUB_ENV": ""})
    assert done.returncode == 2


def test_shell_does_not_keep_a_tmpdir_that_is_gone(program: Program, shared_store: Path, place: Path) -> None:
    ondol = shlex.join([program.python, "-m", "ondol"])
    options = shlex.join(["--store", str(shared_store), "--tools", "triton", "--room-dir", str(place)])
    script = f"""
eval "$({ondol} open {options})"
eval "$({ondol} close --status 0 --format env)"
echo "${{TMPDIR-unset}} $TRITON_CACHE_DIR"
"""
    done = program.run(["sh", "-c", script], env={"TRITON_CACHE_DIR": "it's mine"})
    assert done.stdout == "unset it's mine\n", done.stderr
