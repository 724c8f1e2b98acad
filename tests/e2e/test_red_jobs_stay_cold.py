"""A red, cancelled or killed job gives nothing, and the next one is as cold: tonight, and every night."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from people import Program
from walls.rooms import NIGHTLY

pytestmark = pytest.mark.warm

#: Writes what CuPy keeps: a plain file with no manifest. Argument: how many seconds ago.
PLAIN = """
import hashlib, os, sys, time
def plain(word, age):
    body = word.encode() * 100
    data = hashlib.sha1(body).hexdigest().encode() + body
    folder = os.environ["CUPY_CACHE_DIR"]
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, hashlib.sha1(word.encode()).hexdigest() + ".cubin")
    with open(path, "wb") as file:
        file.write(data)
    os.utime(path, (time.time() - age,) * 2)
"""


def keys(store: Path) -> set[str]:
    return {path.stem for path in store.rglob("*.pack")}


def run(program: Program, store: Path, tmp_path: Path, script: str, *options: str, **env: str):
    """(what came of it, the report)"""
    said = tmp_path / "report.json"
    command = ("run", "--store", str(store), "--tools", "triton,cupy", "--json", str(said), *options, "--")
    done = program.ondol(*command, "sh", "-c", script, env=env)
    return done, json.loads(said.read_text())


def compiled(program: Program, *names: str) -> str:
    return f"{program.python} {program.programs}/standin.py {' '.join(names)}"


@pytest.mark.parametrize("end", ["exit 2", "exit 124", "kill -TERM $$", "kill -KILL $$"])
def test_what_is_whole_is_published_however_the_command_ends(
    program: Program, store_path: Path, tmp_path: Path, end: str
) -> None:
    done, report = run(program, store_path, tmp_path, f"{compiled(program, 'one')}; {end}", **NIGHTLY)
    assert done.returncode == report["status"] != 0
    assert report["tools"]["triton"]["published"] == 1
    assert f"new entries are published: publish = auto; {report['publish_decision'].partition('; ')[2]}" in done.stderr
    assert f"the command ended with status {done.returncode}" in report["publish_decision"]
    assert program.job(store_path, "one").hits == 1


def test_on_success_publishes_nothing_of_a_red_job(program: Program, store_path: Path, tmp_path: Path) -> None:
    script = f"{compiled(program, 'one')}; exit 2"
    done, report = run(program, store_path, tmp_path, script, "--publish", "on-success")
    assert "0 published (on-success: the command ended with status 2)" in done.stderr
    assert not report["publish"]
    assert keys(store_path) == set()


def test_rule_is_said_when_all_is_well(program: Program, store_path: Path) -> None:
    job = program.job(store_path, "one")
    assert "new entries are published: publish = auto; not a CI job\n" in job.stderr


@pytest.mark.parametrize(("end", "kept"), [("exit 1", 2), ("kill -KILL $$", 1), ("exit 137", 1), ("exit 124", 1)])
def test_plain_files_of_a_killed_process_wait_until_they_are_settled(
    program: Program, store_path: Path, tmp_path: Path, end: str, kept: int
) -> None:
    """What was being written when it was killed may be half; no manifest says otherwise. An older file is whole."""
    writer = tmp_path / "writer.py"
    writer.write_text(PLAIN + "plain('old', 100)\nplain('young', -60)\n")  # however long the end takes
    done, report = run(program, store_path, tmp_path, f"{program.python} {writer}; {end}")
    tool = report["tools"]["cupy"]
    assert (tool["new"], tool["published"], len(keys(store_path))) == (kept, kept, kept), done.stderr
    assert tool["refused"] == ({"cut-off": 1} if kept == 1 else {})


def test_failed_store_is_said_and_not_the_rule(program: Program, store_path: Path, tmp_path: Path) -> None:
    (store_path / "ondol-store.json").write_text("{")
    done, report = run(program, store_path, tmp_path, compiled(program, "one"))
    assert "0 published (the store failed: " in done.stderr
    assert "auto" not in done.stderr
    assert not report["publish"]


def test_store_that_fails_at_the_end_is_said_and_not_the_rule(
    program: Program, store_path: Path, tmp_path: Path
) -> None:
    # Away before there is anything to give: what is whole for a second is published beside the command.
    script = f"mv {store_path} {store_path}.away; {compiled(program, 'one')}"
    done, report = run(program, store_path, tmp_path, script)
    assert "0 published (the store failed: no store at" in done.stderr
    assert not report["publish"]


SUITE = (
    PLAIN
    + """
import signal
def test_good():
    plain("good", 5)

def test_crashes():
    plain("crash", 0)
    os.kill(os.getpid(), signal.SIGKILL)

def test_good_too():
    plain("later", 0)

def test_fails():
    plain("failed", 0)
    assert False
"""
)


def test_item_that_crashed_costs_only_what_was_written_during_it(store_path: Path, tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    said = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "ondol",
        "test",
        "--devices=cpu:1",
        "--retries=0",
        "--judge=off",
        "--store",
        str(store_path),
    ]
    done = subprocess.run(
        [*command, "--tools", "cupy", "-p", "no:cacheprovider", "test_suite.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "ONDOL_JSON": str(said)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    tool = json.loads(said.read_text())["tools"]["cupy"]
    assert (tool["published"], tool["refused"]) == (3, {"cut-off": 1}), done.stdout + done.stderr
