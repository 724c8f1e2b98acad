"""`--fix`: exactly what `--dry-run` showed, on the caller's own files, whatever somebody else puts in the way."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from doctor_runs import OTHER, UID, Doctor, give
from handmade import key_of, present, write_triton_entry
from ondol.doctor import commands, repair
from ondol.doctor.api import Repair
from people import Program, needs_root

pytestmark = pytest.mark.warm


def modes(path: Path) -> dict[str, tuple[str, int, int]]:
    items = [path, *sorted(path.rglob("*"))]
    return {str(item): (f"{item.lstat().st_mode:o}", item.lstat().st_uid, item.lstat().st_ino) for item in items}


def chmod(path: Path, add: int = 0, drop: int = 0) -> Repair:
    status = path.lstat()
    return Repair("chmod", str(path), status.st_dev, status.st_ino, add, drop)


def remove(path: Path) -> Repair:
    status = path.lstat()
    return Repair("remove", str(path), status.st_dev, status.st_ino, written_ns=status.st_mtime_ns)


def refusal(wanted: Repair) -> str:
    (done,) = repair.carry_out([wanted])
    return done.refused


@pytest.fixture
def shared(place: Path) -> Path:
    """A group's cache: one user worked under umask 077, another's files are of no use to anybody either."""
    cache = place / "cache"
    cache.mkdir()
    for number in range(4):
        write_triton_entry(cache, number)
    give(cache, UID)
    for item in cache.rglob("*"):
        item.chmod(0o700 if item.is_dir() else 0o600)
    cache.chmod(0o2770)
    give(cache / key_of(3), OTHER, UID)
    return cache


@needs_root
@pytest.mark.root
def test_dry_run_changes_nothing_and_shows_what_would_be_done(program: Program, shared: Path, doctor: Doctor) -> None:
    before = modes(shared)
    planned = doctor(shared, "--fix", "--dry-run", uid=UID).json["repairs"]
    assert modes(shared) == before
    assert {one["done"] for one in planned} == {False}
    said = program.ondol("doctor", str(shared), "--dry-run", uid=UID).stdout
    assert all(f"would do: {one['command']}" in said for one in planned)

    done = doctor(shared, "--fix", uid=UID).json["repairs"]

    assert [(one["command"], one["done"], one["refused"]) for one in done] == [
        (one["command"], True, "") for one in planned
    ]


@needs_root
@pytest.mark.root
def test_own_files_are_mended_and_foreign_ones_are_not_touched(shared: Path, doctor: Doctor) -> None:
    foreign = modes(shared / key_of(3))
    said = doctor(shared, "--fix", uid=UID)
    assert (said.status, {one["refused"] for one in said.json["repairs"]}) == (1, {""}), "the foreign entry is left"
    assert modes(shared / key_of(3)) == foreign
    for number in range(3):
        folder = shared / key_of(number)
        assert f"{folder.stat().st_mode:o}"[-4:] == "2770"
        assert {f"{file.stat().st_mode:o}"[-3:] for file in folder.iterdir()} == {"660"}
    assert not [finding for finding in said.json["findings"] if finding["safe"]], "nothing is left that could be mended"
    assert {finding["where"]["owner"] for finding in said.json["findings"]} == {OTHER}


@needs_root
@pytest.mark.root
def test_command_that_doctor_prints_opens_no_private_file_of_roots(place: Path, doctor: Doctor) -> None:
    """Somebody who can write in the cache moves it there, or links it, and waits for root to type what was printed."""
    cache = place / "cache"
    write_triton_entry(cache, 1)
    for item in (cache, *cache.rglob("*")):
        item.chmod(0o777 if item.is_dir() else 0o644)
    secret, public = cache / key_of(1) / "secret", cache / key_of(1) / "public"
    for path, mode in ((secret, 0o600), (public, 0o644), (place / "elsewhere", 0o644)):
        path.write_text("root's own")
        path.chmod(mode)
    (cache / "linked").hardlink_to(place / "elsewhere")
    (cache / "way").symlink_to(place / "elsewhere")
    before = modes(secret) | modes(place / "elsewhere")
    given = {path: path.lstat().st_gid for path in (secret, place / "elsewhere")}
    subprocess.run(["sh", "-c", commands.share_with_group(0, str(cache), OTHER, plain=True)], check=True)
    assert modes(secret) | modes(place / "elsewhere") == before
    assert {path: path.lstat().st_gid for path in given} == given
    for path in (public, cache / key_of(1), cache / key_of(1) / "add.cubin"):
        assert (path.stat().st_gid, bool(path.stat().st_mode & stat.S_IWGRP)) == (OTHER, True)
    assert (cache / key_of(1)).stat().st_mode & stat.S_ISGID
    printed = [finding["fix"] for finding in doctor(cache, uid=UID).json["findings"] if "chgrp" in finding["fix"]]
    assert all("-links 1" in fix for fix in printed), printed


@needs_root
@pytest.mark.root
def test_root_changes_nothing_that_belongs_to_others(shared: Path, doctor: Doctor) -> None:
    before = modes(shared)
    doctor(shared, "--fix")
    assert modes(shared) == before


@needs_root
@pytest.mark.root
def test_lock_of_a_dead_build_goes(place: Path, doctor: Doctor) -> None:
    cache = place / "cache"
    for name in ("ours", "theirs"):
        folder = cache / name
        folder.mkdir(parents=True)
        (folder / "build.ninja").write_text("cflags = -DTORCH_EXTENSION_NAME=x")
        (folder / "lock").touch()
        os.utime(folder / "lock", (time.time() - 2 * 86400,) * 2)
    give(cache, UID)
    os.chown(cache / "theirs" / "lock", OTHER, OTHER)
    said = doctor(cache, "--fix", "--only", "orphans", uid=UID)
    assert [one["path"] for one in said.json["repairs"]] == [str(cache / "ours" / "lock")]
    assert not (cache / "ours" / "lock").exists()
    assert (cache / "theirs" / "lock").exists()
    assert [finding["safe"] for finding in said.json["findings"]] == [False]
    assert sorted(os.listdir(cache / "ours")) == ["build.ninja"]


def test_nothing_to_mend_is_said(program: Program, tmp_path: Path) -> None:
    done = program.ondol("doctor", str(tmp_path), "--fix")
    assert done.returncode == 0
    assert "nothing that --fix could do" in done.stdout


# -- somebody is in the way --------------------------------------------------------------------------------------


def test_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.touch(mode=0o600)
    path.touch(mode=0o600)
    wanted = chmod(path, add=0o066)
    path.unlink()
    path.symlink_to(victim)
    assert refusal(wanted) in ("something else has taken its name", "it is neither a file nor a directory")
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_link_that_comes_after_the_last_look_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.touch(mode=0o600)
    path.touch(mode=0o600)
    wanted = chmod(path, add=0o066)
    real = repair._check

    def look_then_swap(repair_: Repair, status: os.stat_result) -> None:
        real(repair_, status)
        path.rename(tmp_path / "looked at")
        path.symlink_to(victim)

    monkeypatch.setattr(repair, "_check", look_then_swap)
    assert refusal(wanted) == ""
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "looked at").stat().st_mode) == 0o666


def test_link_on_the_way_is_not_followed(tmp_path: Path) -> None:
    """The same inode, reached another way: a directory above it became a link."""
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "file"
    path.touch(mode=0o600)
    wanted = chmod(path, add=0o066)
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").symlink_to("b")
    assert "directory" in refusal(wanted) or "symbolic" in refusal(wanted)
    assert stat.S_IMODE((tmp_path / "b" / "file").stat().st_mode) == 0o600


def test_another_file_of_that_name_is_not_changed(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    path.touch(mode=0o600)
    wanted, gone = chmod(path, add=0o066), remove(path)
    other.touch(mode=0o600)
    other.rename(path)
    assert refusal(wanted) == refusal(gone) == "something else has taken its name"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_file_with_another_name_elsewhere_is_not_opened(tmp_path: Path) -> None:
    """Somebody made a hard link to a private file of ours in the shared cache, and waits for us to open it."""
    secret, planted = tmp_path / "secret", tmp_path / "planted"
    secret.touch(mode=0o600)
    os.link(secret, planted)
    assert refusal(chmod(planted, add=0o060)) == "it has another name elsewhere"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_lock_that_was_taken_meanwhile_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our last look and the removal, the old lock goes and a live process makes its own."""
    path = tmp_path / "lock"
    path.touch()
    wanted = remove(path)
    real = os.rename

    def replaced_then_rename(*arguments: object, **options: object) -> None:
        path.unlink()
        path.write_text("mine")  # on ext4 with the inode of the old one
        monkeypatch.setattr(os, "rename", real)
        real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", replaced_then_rename)
    assert refusal(wanted) == "something else has taken its name"
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["lock"]


def test_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert refusal(chmod(tmp_path / "fifo", add=0o060)) == "it is neither a file nor a directory"
    assert "not a plain file" in refusal(remove(tmp_path))


def test_file_that_is_gone_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wanted = [chmod(tmp_path / "file", add=0o060), remove(tmp_path / "file")]
    (tmp_path / "file").unlink()
    assert [done.refused for done in repair.carry_out(wanted)] == ["No such file or directory"] * 2


def test_unreadable_file_of_our_own_is_mended(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o000)
    assert refusal(chmod(tmp_path / "folder", add=0o700)) == ""
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700
    assert refusal(chmod(tmp_path / "folder", drop=0o022)) == ""


def test_file_server_that_died_meanwhile_does_not_hang_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    wanted = chmod(tmp_path / "file", add=0o060)
    monkeypatch.setattr(os, "open", lambda *_arguments, **_options: signal.pause())
    (done,) = repair.carry_out([wanted], seconds=1.0)
    assert "is not known: no answer within 1 seconds" in done.refused


@needs_root
@pytest.mark.root
def test_file_of_another_user_is_not_changed_by_root(tmp_path: Path) -> None:
    (tmp_path / "file").touch(mode=0o600)
    os.chown(tmp_path / "file", OTHER, OTHER)
    assert refusal(chmod(tmp_path / "file", add=0o060)) == f"it belongs to uid {OTHER}"
    assert refusal(remove(tmp_path / "file")) == f"it belongs to uid {OTHER}"


@needs_root
@pytest.mark.root
def test_setgid_that_the_kernel_drops_is_not_taken_for_done(place: Path, program: Program) -> None:
    """chmod succeeds and does nothing for who is not in the group."""
    path = place / "folder"
    path.mkdir()
    os.chown(path, UID, OTHER)
    path.chmod(0o775)
    code = (
        "from ondol.doctor import repair; from ondol.doctor.api import Repair; import os, stat;"
        f"status = os.stat({str(path)!r});"
        f"print(repair.carry_out([Repair('chmod', {str(path)!r}, status.st_dev, status.st_ino, stat.S_ISGID)])[0].refused)"
    )
    done = program.run([program.python, "-c", code], uid=UID)
    assert "not a member of the group" in done.stdout, done.stderr
    assert f"{path.stat().st_mode:o}"[-4:] == "0775"


@needs_root
@pytest.mark.root
def test_racing_attacker_gets_no_file_opened(place: Path, program: Program) -> None:
    """Another user swaps a name between the caller's own file and a link to the caller's secret, as fast as possible."""
    shared, home = place / "shared", place / "home"
    for path in (shared, home):
        path.mkdir()
        os.chown(path, UID, UID)
    shared.chmod(0o777)
    secret, bait = home / "secret", shared / "bait"
    for path in (secret, bait):
        path.touch(mode=0o600)
        os.chown(path, UID, UID)
    swap = (
        "import os, sys\nos.chdir(sys.argv[1])\nprint(flush=True)\n"
        "while True:\n"
        "    os.rename('bait', 'real'); os.symlink('../home/secret', 'bait')\n"
        "    os.unlink('bait'); os.rename('real', 'bait')\n"
    )
    status = bait.stat()
    fix = (
        "from ondol.doctor import repair; from ondol.doctor.api import Repair\n"
        f"wanted = Repair('chmod', {str(bait)!r}, {status.st_dev}, {status.st_ino}, 0o066)\n"
        # One helper process for all of them: the race is with what it does, not with how it starts.
        "reasons = {done.refused for done in repair.carry_out([wanted] * 20000)}\n"
        "print(sorted(reasons))"
    )
    attacker = subprocess.Popen(
        ["python3", "-c", swap, str(shared)],
        user=OTHER,
        group=OTHER,
        extra_groups=[],
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin"},
    )
    try:
        present(attacker.stdout).readline()
        done = program.run([program.python, "-c", fix], uid=UID)
    finally:
        attacker.kill()
        attacker.wait()
        present(attacker.stdout).close()
    assert "something else has taken its name" in done.stdout, (done.stdout, done.stderr)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
