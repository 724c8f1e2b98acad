"""Seed 000: the top of the shared cache is fine, some key directories in it are not, and 21 tests fail in the night."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from doctor_runs import OTHER, UID, Doctor, give, type_in
from handmade import key_of, write_triton_entry
from ondol.doctor import commands
from people import Program, needs_root

pytestmark = [needs_root, pytest.mark.root, pytest.mark.warm]


def remedy(cache: Path) -> str:
    return commands.throughout(str(cache), f"chown {UID}", plain=True)


@pytest.fixture(params=[0o777, 0o1777], ids=oct)
def cache(place: Path, request: pytest.FixtureRequest) -> Path:
    """The top is open to all; a job that ran as root has left key directories of mode 0755."""
    cache = place / "triton"
    cache.mkdir()
    cache.chmod(request.param)
    for number in range(3):
        give(write_triton_entry(cache, number), UID)
    for number in range(3, 6):
        write_triton_entry(cache, number).chmod(0o755)
    return cache


def renew(program: Program, cache: Path, number: int) -> subprocess.CompletedProcess[str]:
    """What Triton does when it writes an entry again: a temporary directory in the key directory."""
    code = f"import os; os.makedirs({str(cache / key_of(number) / 'tmp.pid_1_x')!r})"
    return program.run([program.python, "-c", code], uid=UID)


def test_leaves_that_a_check_of_the_top_misses_are_found(program: Program, cache: Path, doctor: Doctor) -> None:
    naive = program.run(["sh", "-c", f'test -w "{cache}" && mktemp -p "{cache}"'], uid=UID)
    assert naive.returncode == 0, "the check that everybody has must pass, or this test shows nothing"
    os.unlink(naive.stdout.strip())
    assert "PermissionError" in renew(program, cache, 3).stderr

    said = doctor(cache, uid=UID)

    (finding,) = said.of("owners")
    assert (said.status, finding["severity"], finding["places"]) == (1, "error", 3)
    leaves = [str(cache / key_of(number)) for number in (3, 4, 5)]
    assert finding["where"] == {"path": finding["where"]["path"], "owner": 0, "group": 0, "mode": "0755"}
    assert finding["where"]["path"] in leaves
    assert f"uid {UID} cannot create files in" in finding["what"]
    assert finding["fix"] == "sudo " + remedy(cache)
    assert not finding["safe"]


def test_printed_command_cures(program: Program, cache: Path, doctor: Doctor) -> None:
    (finding,) = doctor(cache, uid=UID).of("owners")

    type_in(finding["fix"])

    said = doctor(cache, uid=UID)
    assert (said.status, said.json["healthy"], said.of("owners")) == (0, True, [])
    assert renew(program, cache, 3).returncode == 0


def test_words_for_people_name_the_leaf(program: Program, cache: Path) -> None:
    done = program.ondol("doctor", str(cache), uid=UID)
    assert done.returncode == 1
    assert "ERROR owners: 3 directories of uid 0" in done.stdout
    assert "(owner 0, group 0, mode 0755), and 2 more" in done.stdout
    assert f"fix    sudo {remedy(cache)}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_root_sees_what_would_fail_another_user(cache: Path, doctor: Doctor) -> None:
    """Asked as root, the fault is another one's: said as a warning, with the same cure."""
    (finding,) = doctor(cache).of("owners")
    assert (finding["severity"], finding["places"]) == ("warning", 3)
    assert f"that uid {UID} uses too" in finding["what"]
    assert finding["fix"] == remedy(cache)


def test_cure_for_one_user_does_not_lock_the_other_out(program: Program, cache: Path, doctor: Doctor) -> None:
    """With a third user in the cache, handing everything to one of them is no cure, and opening it to all is worse:
    everybody could put code into everybody's jobs."""
    give(write_triton_entry(cache, 7), OTHER)
    said = doctor(cache, uid=UID)
    (finding, *_) = said.of("owners", "error")
    assert finding["fix"] == "ondol run -- COMMAND"
    assert "chmod -R a+" not in json.dumps(said.json)
    for uid in (UID, OTHER):
        job = [program.python, str(program.programs / "standin.py"), "add"]
        done = program.ondol("run", "--tools", "triton", "--", *job, uid=uid, env={"TRITON_CACHE_DIR": str(cache)})
        assert done.returncode == 0, done.stderr


def test_cure_of_a_group_leaves_the_next_entry_open(program: Program, place: Path, doctor: Doctor) -> None:
    """Where the top belongs to a group, the cure keeps it the group's, for what is there and for what comes."""
    cache = place / "triton"
    cache.mkdir()
    os.chown(cache, 0, UID)
    cache.chmod(0o2775)
    write_triton_entry(cache, 1).chmod(0o755)
    os.chown(cache / key_of(1), 0, 0)
    said = doctor(cache, uid=UID)
    (finding,) = said.of("owners")

    type_in(finding["fix"])

    again = doctor(cache, uid=UID)
    assert (again.status, json.dumps(again.json["findings"])) == (0, "[]")
    assert renew(program, cache, 1).returncode == 0
    assert (cache / key_of(1) / "tmp.pid_1_x").stat().st_gid == UID
