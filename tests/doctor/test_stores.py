"""The store: what is wrong with it, tried out by publishing to it, and left as it was found."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from doctor_runs import OTHER, UID, Doctor, look, type_in
from handmade import make_entry, trust_everybody
from ondol.doctor.checks import stores
from ondol.host import files
from ondol.store import lane, marker, pack
from ondol.store.directory import DirectoryStore
from people import Program, needs_root
from sabotage import sabotages

pytestmark = pytest.mark.warm

BOTH = ("store", "publishing")


def tree(path: Path) -> dict[str, tuple[int, int]]:
    return {str(item): (item.lstat().st_ino, item.lstat().st_mode) for item in sorted(path.rglob("*"))}


def test_healthy_store_is_neither_blamed_nor_changed(store: DirectoryStore, store_path: Path) -> None:
    assert look(store_path, *BOTH) == []
    assert list((store_path / "lanes").iterdir()) == [], "the lane that was made for trying is gone"
    store.publish([(make_entry(1).address, pack.encode(make_entry(1)))])
    before = tree(store_path)
    assert look(store_path, *BOTH) == []
    assert tree(store_path) == before


def test_store_of_the_future_is_found(store_path: Path) -> None:
    fields = json.loads((store_path / marker.NAME).read_text())
    (store_path / marker.NAME).write_text(json.dumps({**fields, "format": 99}))
    (finding,) = look(store_path, *BOTH)
    assert (finding.severity, "has format 99" in finding.what) == ("error", True)
    assert "pip install --upgrade ondol" in finding.fix


def test_store_without_lanes_is_found(store_path: Path) -> None:
    (store_path / "lanes").rmdir()
    (finding,) = look(store_path, *BOTH)
    assert (finding.check, finding.severity) == ("store", "error")


def test_store_that_was_configured_and_is_not_there_is_found(tmp_path: Path, program: Program) -> None:
    done = program.ondol("doctor", "--store", str(tmp_path / "store"), "--only", "reach", "--json")
    (finding,) = [one for one in json.loads(done.stdout)["findings"] if str(tmp_path) in one["what"]]
    assert (done.returncode, finding["fix"]) == (1, f"ondol store init {tmp_path / 'store'}")


def test_lanes_that_anybody_can_rename_are_found(store_path: Path) -> None:
    (store_path / "lanes").chmod(0o777)
    (finding,) = look(store_path, "store")
    assert (finding.severity, finding.where.mode, len(finding.repairs)) == ("error", "0777", 1)
    type_in(finding.fix)
    assert look(store_path, "store") == []


def test_folders_that_readers_pass_over_are_found(store: DirectoryStore, store_path: Path) -> None:
    """Somebody ran `chmod -R g+w` over the store: every reader now ignores what is in it."""
    store.publish([(make_entry(1).address, pack.encode(make_entry(1)))])
    subprocess.run(["chmod", "-R", "g+w", store_path / "lanes"], check=True)
    (store_path / "lanes").chmod(0o1777)
    assert DirectoryStore(str(store_path), trust_everybody).index("triton", ["main"]) == []
    (finding,) = look(store_path, "store")
    assert (finding.severity, finding.places) == ("warning", 5)
    type_in(finding.fix)
    assert look(store_path, "store") == []
    assert len(DirectoryStore(str(store_path), trust_everybody).index("triton", ["main"])) == 1


@needs_root
@pytest.mark.root
def test_writers_that_nobody_believes_are_found(place: Path, program: Program, doctor: Doctor) -> None:
    """A store made by a colleague who names writers: without --trust they are not believed."""
    path = place / "store"
    path.mkdir()
    os.chown(path, OTHER, OTHER)
    assert program.ondol("store", "init", str(path), "--writers", f"{OTHER},{UID}", uid=OTHER).returncode == 0
    (finding,) = doctor(path, "--only", "store", uid=UID).json["findings"]
    assert (finding["severity"], finding["fix"]) == ("warning", f"export ONDOL_TRUST={OTHER}")
    assert doctor(path, "--only", "store", uid=UID, env={"ONDOL_TRUST": str(OTHER)}).json["findings"] == []


@needs_root
@pytest.mark.root
def test_writers_who_cannot_write_are_found(place: Path, program: Program, doctor: Doctor) -> None:
    path = place / "store"
    assert program.ondol("store", "init", str(path), "--writers", str(UID)).returncode == 0
    (path / "lanes").chmod(0o755)
    said = doctor(path, "--only", "store,publishing", uid=UID)
    (finding,) = said.of("store")
    assert (finding["severity"], "only uid 0 can make lanes" in finding["what"]) == ("warning", True)
    (finding,) = said.of("publishing")
    assert (finding["severity"], f"uid {UID} cannot publish" in finding["what"]) == ("note", True)
    type_in(said.of("store")[0]["fix"])
    assert doctor(path, "--only", "store,publishing", uid=UID).json["findings"] == []


@needs_root
@pytest.mark.root
def test_entries_of_others_that_cannot_be_read_are_found(place: Path, program: Program, doctor: Doctor) -> None:
    path = place / "store"
    program.ondol("store", "init", str(path), "--writers", f"{UID},{OTHER}")
    program.job(path, "a", uid=OTHER)
    program.job(path, "b", uid=2003)
    assert [finding["severity"] for finding in doctor(path, uid=UID).json["findings"]] == ["note"], (
        "2003 is nobody's writer"
    )
    for folder in (path / "lanes").glob(f"{OTHER}-*/main"):
        folder.chmod(0o700)
    findings = doctor(path, "--only", "store", uid=UID).json["findings"]
    warning = next(finding for finding in findings if finding["severity"] == "warning")
    assert (warning["places"], warning["where"]["mode"]) == (1, "0700")
    type_in(warning["fix"])
    assert doctor(path, uid=UID).json["warnings"] == 0


def test_store_that_breaks_its_promise_is_found(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last producer wins, as on a file system whose link replaces, readers see entries change."""
    sabotages.rename_instead_of_link(monkeypatch)
    findings = look(store_path, "publishing")
    assert {finding.severity for finding in findings} == {"error"}
    assert any("publishers of 8 entries were told that theirs is the one" in finding.what for finding in findings)
    assert list((store_path / "lanes").iterdir()) == []


def test_torn_entry_is_found(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that gives a file its name before it has its bytes."""
    real = lane.read_pack
    monkeypatch.setattr(lane, "read_pack", lambda *arguments: real(*arguments)[:-10])
    (finding, *_) = look(store_path, "publishing")
    assert (finding.severity, "a reader saw a broken entry" in finding.what) == ("error", True)


def test_entry_that_vanishes_is_found(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "link_new", lambda *_: True)
    findings = look(store_path, "publishing")
    assert any("8 of 8 acknowledged entries are not there" in finding.what for finding in findings)


@needs_root
@pytest.mark.root
def test_full_store_is_found(place: Path, doctor: Doctor) -> None:
    path = place / "mnt"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "none", str(path)], check=True)
    marker.create(str(path), marker.Writers(), shared=True)
    (finding,) = doctor(path, "--only", "publishing", uid=UID).json["findings"]
    assert (finding["severity"], "No space left" in finding["why"]) == ("error", True)
    assert list((path / "lanes").iterdir()) == []


def test_processes_of_the_check_take_turns(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four writers, each its own process: one that did everything alone would prove nothing."""
    real = stores._worker

    def worker(subject: object, scope: str, writer: int) -> dict[str, object]:
        answer = real(subject, scope, writer)  # type: ignore[arg-type]
        return {**answer, "troubles": [f"process {os.getpid()}"]}

    monkeypatch.setattr(stores, "_worker", worker)
    pids = [finding.what.split()[-1] for finding in look(store_path, "publishing")]
    assert len(set(pids)) >= 2
