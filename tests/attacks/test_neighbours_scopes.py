"""The UID that runs strangers' code writes into `main`, or into a scope that it was not given.

The store's marker maps writers to scopes; readers hold it against the owner of each lane, whatever the writer did.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from people import Program, needs_root

pytestmark = [needs_root, pytest.mark.root, pytest.mark.warm]

TRUSTED, STRANGER, READER = 2001, 2003, 2004
#: Publishes by hand, past every check of a job: what an attacker with a shell does.
BY_HAND = """
import sys
from ondol.store import pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address
path, source, target = sys.argv[1:]
store = DirectoryStore(path, lambda marker: lambda owner, scope="": True)
for stored in store.index("triton", [source]):
    entry = pack.decode(store.fetch(stored), stored.address)
    moved = entry._replace(address=Address(target, *entry.address[1:]))
    print(store.publish([(moved.address, pack.encode(moved))])[0].new)
"""


@pytest.fixture
def store(program: Program, public: Path) -> Iterator[Path]:
    path = public / "scoped-store"
    made = program.ondol("store", "init", str(path), "--writers", f"{TRUSTED},{STRANGER}:pr-*")
    assert made.returncode == 0, made.stderr
    yield path
    shutil.rmtree(path)


def read(program: Program, store: Path, scope: str, uid: int | None = READER) -> int:
    return program.job(store, "evil", uid=uid, options=("--publish", "never", "--scope", scope)).hits


def test_strangers_entry_in_main_is_used_by_nobody_else(program: Program, store: Path) -> None:
    own = program.job(store, "evil", uid=STRANGER, options=("--scope", "pr-7"))
    assert (own.compiled, own.warnings) == (1, [])
    planted = program.run([program.python, "-c", BY_HAND, str(store), "pr-7", "main"], uid=STRANGER)
    assert planted.stdout == "True\n", planted.stderr
    for uid in (READER, TRUSTED, None):
        assert read(program, store, "main", uid) == 0
        assert read(program, store, "pr-7", uid) == 1
    listed = json.loads(program.ondol("store", "ls", "--store", str(store), "--json", uid=READER).stdout)["entries"]
    assert {(entry["scope"], entry["trusted"]) for entry in listed} == {("main", False), ("pr-7", True)}


def test_job_says_that_its_user_may_not_write_the_scope(program: Program, store: Path) -> None:
    job = program.job(store, "evil", uid=STRANGER, options=("--scope", "main"))
    assert job.status == 0
    (warning,) = job.warnings
    assert f"uid {STRANGER} may not publish into the scope main" in warning
    assert f"ondol store writers add {STRANGER}:main" in warning
    assert not list(store.glob("lanes/*/main"))


def test_writers_are_taken_and_given_while_jobs_read(program: Program, store: Path) -> None:
    """The marker is replaced whole: no reader ever meets a store without one, or half of one."""
    program.job(store, "evil", uid=STRANGER, options=("--scope", "pr-7"))
    where = ("--store", str(store))
    over = threading.Event()
    broken: list[str] = []

    def look() -> None:
        while not over.is_set():
            try:
                json.loads((store / "ondol-store.json").read_bytes())
            except (OSError, ValueError) as error:
                broken.append(str(error))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for _ in range(3):
            assert program.ondol("store", "writers", "remove", str(STRANGER), *where).returncode == 0
            assert program.ondol("store", "writers", "add", f"{STRANGER}:pr-*", *where).returncode == 0
    finally:
        over.set()
        reader.join()
    assert broken == []
    assert read(program, store, "pr-7") == 1
    assert program.ondol("store", "writers", "remove", str(STRANGER), *where).returncode == 0
    assert read(program, store, "pr-7") == 0
    assert program.ondol("store", "writers", "list", *where).stdout == f"{TRUSTED}\n"


def test_only_the_owner_changes_the_writers(program: Program, store: Path) -> None:
    before = (store / "ondol-store.json").read_bytes()
    done = program.ondol("store", "writers", "add", f"{STRANGER}:main", "--store", str(store), uid=STRANGER)
    assert done.returncode == 3
    assert "belongs to uid 0" in done.stderr
    assert (store / "ondol-store.json").read_bytes() == before


def test_root_changes_a_users_store_for_its_owner(program: Program, public: Path) -> None:
    """Were it root's afterwards, everybody would believe what only its owner's friends believed before."""
    path = public / "somebodys-store"
    path.mkdir()
    os.chown(path, TRUSTED, TRUSTED)
    program.ondol("store", "init", str(path), uid=TRUSTED)
    assert program.ondol("store", "writers", "add", f"{READER}:main", "--store", str(path)).returncode == 0
    assert (path / "ondol-store.json").stat().st_uid == TRUSTED


def test_older_ondol_is_told_not_to_read_a_store_whose_rules_it_does_not_know(program: Program, store: Path) -> None:
    """Format 2 wherever a rule narrows trust; a store without such rules stays readable for every version."""
    assert json.loads((store / "ondol-store.json").read_text())["format"] == 2
    program.ondol("store", "writers", "remove", str(STRANGER), "--store", str(store))
    assert json.loads((store / "ondol-store.json").read_text())["format"] == 1
