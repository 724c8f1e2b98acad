"""Repairs for plain caches, meant well, in a directory with a store in it: Ondol's own, and those of CI maintainers.

A store that a group can write is believed by nobody: opened like a plain cache it would be cold for ever, in silence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from doctor_runs import type_in
from handmade import write_triton_entry
from people import Program, needs_root

pytestmark = pytest.mark.warm

UID, OTHER, GROUP = 2001, 2002, 2003
PACKS = 6


@pytest.fixture
def ci_cache(program: Program, public: Path, tmp_path: Path) -> Path:
    """`/ci-cache`: a plain Triton cache and, two levels down, a store with six entries of root's."""
    path = public / tmp_path.name / "ci-cache"
    (path / "deep").mkdir(parents=True)
    path.parent.chmod(0o755)
    done = program.ondol("store", "init", str(path / "deep" / "ondol"))
    assert done.returncode == 0, done.stderr
    program.job(path / "deep" / "ondol", *(f"kernel-{n}" for n in range(PACKS)))
    (path / "triton").mkdir()
    write_triton_entry(path / "triton", 1)
    return path


def filled(program: Program, cache: Path) -> int:
    store = cache / "deep" / "ondol"
    return program.job(store, *(f"kernel-{n}" for n in range(PACKS)), options=("--publish", "never")).hits


def rights(path: Path) -> dict[str, tuple[int, int, int]]:
    found = [path, *path.rglob("*")]
    return {str(one): (one.lstat().st_mode, one.lstat().st_uid, one.lstat().st_gid) for one in found}


def share(path: Path) -> None:
    """What makes doctor want to mend: a top that a group shares, and all that is below closed to that group."""
    os.chown(path, 0, GROUP)
    path.chmod(0o2775)
    for item in (path / "triton").rglob("*"):
        os.chown(item, 0, GROUP)
        item.chmod(0o700 if item.is_dir() else 0o600)


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("as_group", [True, False])
def test_doctor_mends_the_cache_and_leaves_the_store(program: Program, ci_cache: Path, as_group: bool) -> None:
    if as_group:
        share(ci_cache)
        for item in (ci_cache / "deep").rglob("*"):
            os.chown(item, 0, GROUP)  # the store's files are of the group too: as `ls -l` shows them, part of the cache
    else:
        ci_cache.chmod(0o777)
        os.chown(ci_cache / "triton", UID, UID)
    before = rights(ci_cache / "deep" / "ondol")
    assert filled(program, ci_cache) == PACKS
    said = json.loads(program.ondol("doctor", str(ci_cache), "--json").stdout)
    assert program.ondol("doctor", str(ci_cache), "--fix").returncode in (0, 1)
    assert rights(ci_cache / "deep" / "ondol") == before
    fixes = [finding["fix"] for finding in said["findings"] if re.search("chmod|chgrp|chown", finding["fix"])]
    assert fixes
    for fix in fixes:
        type_in(fix)
    assert rights(ci_cache / "deep" / "ondol") == before
    assert filled(program, ci_cache) == PACKS


@needs_root
@pytest.mark.root
def test_every_printed_repair_spares_the_store(program: Program, ci_cache: Path) -> None:
    """As each user who may ask, with each way of sharing that the top can have."""
    store = ci_cache / "deep" / "ondol"
    before, tried = rights(store), set()
    for mode, owner in ((0o2775, 0), (0o777, 0), (0o1777, UID), (0o755, UID)):
        for who in (None, UID, OTHER):
            os.chown(ci_cache, owner, GROUP)
            ci_cache.chmod(mode)
            os.chown(ci_cache / "triton", OTHER, OTHER)
            (ci_cache / "triton").chmod(0o700)
            for finding in json.loads(program.ondol("doctor", str(ci_cache), "--json", uid=who).stdout)["findings"]:
                if re.search("chmod|chgrp|chown|setfacl|rm ", finding["fix"]):
                    tried.add(finding["check"])
                    type_in(finding["fix"])
                    assert rights(store) == before, finding
    assert {"owners", "world-writable"} <= tried


def test_store_is_examined_as_one_wherever_it_lies(program: Program, ci_cache: Path) -> None:
    store = ci_cache / "deep" / "ondol"
    for asked in (ci_cache, store, store / "lanes", next((store / "lanes").iterdir())):
        said = json.loads(program.ondol("doctor", str(asked), "--json").stdout)
        roles = {os.path.basename(one["path"]): one["roles"] for one in said["examined"]}
        assert ["store"] in roles.values(), (asked, roles)


def test_store_is_no_broken_entry_of_a_plain_cache(program: Program, ci_cache: Path) -> None:
    """A Triton cache with a store in it: a directory without kernels looks like a compile that was cut off."""
    for number in range(3):
        write_triton_entry(ci_cache, number)
    long_ago = (1, 1)
    os.utime(ci_cache / "deep", long_ago)
    said = json.loads(program.ondol("doctor", str(ci_cache), "--only", "entries", "--json").stdout)
    assert not [one for one in said["findings"] if "deep" in one["fix"] or "deep" in one["where"]["path"]], said


def merged_fix(cache: Path) -> None:
    """TileOPs #1626, as merged: the group, writing for the group, and setgid on directories, below /ci-cache."""
    subprocess.run(["chgrp", "-R", str(GROUP), cache], check=True)
    subprocess.run(["chmod", "-R", "g+w", cache], check=True)
    subprocess.run(["find", cache, "-type", "d", "-exec", "chmod", "g+s", "{}", "+"], check=True)


def only_lanes(cache: Path) -> None:
    """The owner closed what jobs complained about, one by one; the packs are still open."""
    merged_fix(cache)
    store = cache / "deep" / "ondol"
    subprocess.run(["chmod", "go-w", store, store / "ondol-store.json"], check=True)


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("damage", [merged_fix, only_lanes])
@pytest.mark.parametrize("teller", ["verify", "doctor"])
def test_packs_that_readers_pass_over_are_counted_and_mended(
    program: Program, ci_cache: Path, damage: object, teller: str
) -> None:
    store = ci_cache / "deep" / "ondol"
    damage(ci_cache)  # type: ignore[operator]
    assert filled(program, ci_cache) == 0
    if teller == "verify":
        done = program.ondol("store", "verify", "--store", str(store))
        assert done.returncode != 0, done.stdout
        (fix,) = re.findall(r"^  fix: (.*)$", done.stdout, re.MULTILINE)
    else:
        done = program.ondol("doctor", str(store), "--only", "store")
        (fix,) = set(re.findall(r"^ +fix +(\S.*)$", done.stdout, re.MULTILINE))
    assert f"{PACKS} of {PACKS} entries are passed over" in done.stdout
    type_in(fix)
    assert filled(program, ci_cache) == PACKS
    again = program.ondol("store", "verify", "--store", str(store))
    assert (again.returncode, "passed over" in again.stdout) == (0, False), again.stdout
    assert program.job(store, "more", uid=UID).warnings == [], "other users can still add their lanes"


@needs_root
@pytest.mark.root
def test_packs_of_another_owner_are_counted_and_mended(program: Program, ci_cache: Path) -> None:
    store = ci_cache / "deep" / "ondol"
    packs = sorted(store.rglob("*.pack"))
    for one in packs[:2]:
        os.chown(one, OTHER, OTHER)
    done = program.ondol("store", "verify", "--store", str(store))
    (fix,) = re.findall(r"^  fix: (.*)$", done.stdout, re.MULTILINE)
    assert (done.returncode, f"2 of {PACKS} entries are passed over" in done.stdout) == (4, True), done.stdout
    type_in(fix)
    assert filled(program, ci_cache) == PACKS - 2
    program.job(store, *(f"kernel-{n}" for n in range(PACKS)))
    assert filled(program, ci_cache) == PACKS
