"""Something bad was published, by a run, a commit, a user, a key. The owner of the store takes it back; readers honour
that at once, nobody else can do it, and nobody can undo it but the owner.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ondol.errors import StoreError
from ondol.store import revocations
from people import Program, needs_root

pytestmark = [needs_root, pytest.mark.root, pytest.mark.warm]

WRITER, OTHER, MALLORY = 2001, 2002, 2003
MAKER = {"GITHUB_SHA": "0123456789abcdef0123", "GITHUB_RUN_ID": "7315", "GITHUB_REPOSITORY": "acme/kernels"}


class Place:
    def __init__(self, program: Program, path: Path) -> None:
        self.program = program
        self.path = path
        made = program.ondol("store", "init", str(path), "--writers", f"{WRITER},{OTHER}")
        assert made.returncode == 0, made.stderr

    def store(self, *words: str, uid: int | None = None) -> Any:
        done = self.program.ondol("store", *words, "--store", str(self.path), "--json", uid=uid)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def hits(self, *kernels: str, uid: int = OTHER) -> int:
        return self.program.job(self.path, *kernels, uid=uid, options=("--publish", "never")).hits


@pytest.fixture
def place(program: Program, public: Path) -> Iterator[Place]:
    path = public / "revoking"
    place = Place(program, path)
    assert program.job(path, "bad", uid=WRITER, env=MAKER).compiled == 1
    assert program.job(path, "good", uid=OTHER).compiled == 1
    assert place.hits("bad", "good") == 2
    yield place
    shutil.rmtree(path)


def how_to_name_it(place: Place, kind: str) -> str:
    (bad,) = [entry for entry in place.store("ls")["entries"] if entry["owner"] == WRITER]
    known = {"run": "7315", "commit": "0123456789", "owner": str(WRITER), "entry": bad["key"]}
    return {**known, "full": bad["address"]}[kind]


@pytest.mark.parametrize("kind", ["run", "commit", "owner", "entry", "full"])
def test_revoked_entry_is_a_miss_for_everybody_until_it_is_undone(place: Place, kind: str) -> None:
    flag = "entry" if kind == "full" else kind
    done = place.store("revoke", f"--{flag}", how_to_name_it(place, kind), "--why", "bad image")
    assert done["entries"] == 1
    for uid in (OTHER, WRITER, MALLORY):
        assert place.hits("bad", uid=uid) == 0
    assert place.hits("good") == 1
    (listed,) = place.store("revoke", "--list", uid=OTHER)["revocations"]
    assert (listed["kind"], listed["why"], listed["name"]) == (flag, "bad image", done["name"])
    undone = place.program.ondol("store", "revoke", "--undo", done["name"], "--store", str(place.path))
    assert undone.returncode == 0
    assert place.hits("bad", "good") == 2


def test_job_and_show_say_what_was_revoked_and_who_made_it(place: Place) -> None:
    place.store("revoke", "--run", "7315", "--why", "bad image")
    job = place.program.job(place.path, "bad", uid=OTHER, options=("--publish", "never"))
    assert "1 triton pack in" in job.stderr
    assert "revoked: run 7315 (bad image)" in job.stderr
    assert job.warnings == []
    entries = place.store("show", how_to_name_it(place, "entry"))["entries"]
    (shown,) = [entry for entry in entries if entry["owner"] == WRITER]
    assert "revoked: run 7315" in shown["problem"]
    made = shown["provenance"]
    assert (made["run"], made["commit"], made["uid"]) == ("7315", MAKER["GITHUB_SHA"], WRITER)
    assert {"host", "time", "repository"} <= set(made)


def test_whole_scopes_and_times_are_revoked(place: Place) -> None:
    place.store("revoke", "--scope", "ma*", "--before", "1d")
    assert place.hits("bad", "good") == 2
    place.store("revoke", "--before", "2100-01-01")
    assert place.hits("bad", "good") == 0


def test_maker_publishes_again_what_was_revoked_by_its_run(place: Place) -> None:
    place.store("revoke", "--run", "7315")
    again = place.program.job(place.path, "bad", uid=WRITER, env={**MAKER, "GITHUB_RUN_ID": "7316"})
    assert (again.hits, again.compiled) == (0, 1)
    assert place.hits("bad") == 1


def test_nobody_but_the_owner_revokes_or_undoes(place: Place) -> None:
    where = ("--store", str(place.path))
    done = place.program.ondol("store", "revoke", "--owner", str(WRITER), *where, uid=MALLORY)
    assert (done.returncode, "belongs to uid 0" in done.stderr) == (3, True)
    name = place.store("revoke", "--run", "7315")["name"]
    assert place.program.ondol("store", "revoke", "--undo", name, *where, uid=WRITER).returncode == 3
    assert place.hits("bad") == 0


def test_revocation_that_somebody_else_wrote_counts_for_nobody(place: Place) -> None:
    place.store("revoke", "--run", "0")
    folder = place.path / revocations.FOLDER
    (record,) = folder.iterdir()
    forged = folder / "ffffffffffff"
    forged.write_text(record.read_text().replace('"run"', '"owner"').replace('"0"', f'"{WRITER}"'))
    os.chown(forged, MALLORY, MALLORY)
    assert place.hits("bad", "good") == 2


@pytest.mark.parametrize("damage", ["half", "newer", "closed"])
def test_what_was_revoked_and_cannot_be_read_leaves_the_store_unused(place: Place, damage: str) -> None:
    """A reader that cannot tell what was taken back must not guess: it runs cold, and says why."""
    place.store("revoke", "--run", "0")
    (record,) = (place.path / revocations.FOLDER).iterdir()
    if damage == "half":
        record.write_text(record.read_text()[:20])
    elif damage == "newer":
        record.write_text(record.read_text().replace('"format": 1', '"format": 2'))
    else:
        record.chmod(0)
    job = place.program.job(place.path, "good", uid=OTHER, options=("--publish", "never"))
    assert (job.status, job.hits) == (0, 0)
    (warning,) = job.warnings
    assert "what was revoked" in warning


def test_lane_owner_cannot_dodge_by_a_link(place: Place, tmp_path: Path) -> None:
    (place.path / revocations.FOLDER).symlink_to(tmp_path)
    root = os.open(place.path, os.O_RDONLY)
    with pytest.raises(StoreError, match="cannot be told"):
        revocations.read(root, "x", {0})
    os.close(root)
