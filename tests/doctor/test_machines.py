"""The machine and the user: TMPDIR, traps in /tmp, users without a name or a home, bad releases, rooms."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor_runs import OTHER, UID, Doctor, look_at_machine, machine
from ondol.doctor import releases
from ondol.room import choose
from ondol.tools import table
from people import needs_root

pytestmark = pytest.mark.warm


def pretend(folder: Path, package: str, version: str) -> Path:
    """Only the metadata of a package: whoever imports it to ask for its version fails."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    (folder / f"{package}.py").write_text("raise SystemExit('imported')")
    return folder


# -- TMPDIR ------------------------------------------------------------------------------------------------------


@pytest.fixture
def short() -> Iterator[Path]:
    """Short enough for sockets, wherever this suite itself has its files."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        yield Path(path)


def test_good_tmpdir_is_not_blamed(short: Path) -> None:
    assert look_at_machine(machine({"TMPDIR": str(short)}), "tmpdir") == []


@pytest.mark.parametrize("variable", ["TMPDIR", "TEMP", "TMP"])
def test_stale_tmpdir_is_found(tmp_path: Path, variable: str) -> None:
    """Left over from an earlier job on a login node; Python falls back to /tmp without a word, shells do not."""
    (finding,) = look_at_machine(machine({variable: str(tmp_path / "gone")}), "tmpdir")
    assert (finding.severity, finding.fix) == ("error", f"export {variable}=/tmp")
    assert "No such file or directory" in finding.what


def test_file_as_tmpdir_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (finding,) = look_at_machine(machine({"TMPDIR": str(tmp_path / "file")}), "tmpdir")
    assert "is not a directory" in finding.what


def test_relative_tmpdir_is_found() -> None:
    (finding,) = look_at_machine(machine({"TMPDIR": "tmp"}), "tmpdir")
    assert "is not an absolute path" in finding.what


def test_tmpdir_in_which_anybody_replaces_anything_is_found(short: Path) -> None:
    short.chmod(0o777)
    (finding,) = look_at_machine(machine({"TMPDIR": str(short)}), "tmpdir")
    assert (finding.severity, "sticky" in finding.what) == ("error", True)
    short.chmod(0o1777)
    assert look_at_machine(machine({"TMPDIR": str(short)}), "tmpdir") == []


def test_tmpdir_too_long_for_sockets_is_found(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 80)
    long.mkdir()
    (finding,) = look_at_machine(machine({"TMPDIR": str(long)}), "tmpdir")
    assert (finding.severity, "AF_UNIX" in finding.why) == ("warning", True)


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    ("kind", "says"),
    [("unwritable", "is not writable"), ("theirs", f"belongs to uid {OTHER}"), ("link", f"is a link of uid {OTHER}")],
)
def test_hostile_tmpdir_is_found(place: Path, doctor: Doctor, kind: str, says: str) -> None:
    path = place / "tmp"
    path.mkdir()
    if kind == "theirs":
        os.chown(path, OTHER, UID)
        path.chmod(0o770)
    elif kind == "link":
        path.rmdir()
        (place / "real").mkdir()
        os.chown(place / "real", UID, UID)
        path.symlink_to("real")
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    (finding,) = doctor("--only", "tmpdir", uid=UID, env={"TMPDIR": str(path)}).json["findings"]
    assert (finding["severity"], says in finding["what"]) == ("error", True), finding


# -- leftovers ---------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("torchinductor_robot", "error"),
        (f"torchinductor_uid_{UID}", "error"),
        ("uv-cache-robot", "error"),
        ("tvm-debug-mode-tempdirs", "error"),
        ("torch_extensions", "warning"),
        ("triton", "warning"),
    ],
)
def test_name_taken_by_another_user_is_found(place: Path, doctor: Doctor, name: str, severity: str) -> None:
    path = place / name
    path.mkdir()
    os.chown(path, OTHER, OTHER)
    place.chmod(0o1777)
    env = {"TMPDIR": str(place), "USER": "robot"}
    (finding,) = [
        finding
        for finding in doctor("--only", "leftovers", uid=UID, env=env).json["findings"]
        if finding["where"]["path"] == str(path)
    ]
    assert (finding["severity"], finding["where"]["owner"]) == (severity, OTHER)
    assert finding["fix"] == f"sudo rm -r {path}"
    os.chown(path, UID, UID)
    left = doctor("--only", "leftovers", uid=UID, env=env).json["findings"]
    assert not [finding for finding in left if str(place) in finding["where"]["path"]], "our own are no trouble"


@needs_root
@pytest.mark.root
def test_lock_files_of_others_are_found(place: Path, doctor: Doctor) -> None:
    """uv and vLLM keep locks in /tmp whose names are the same for every user."""
    for name, mode in (("uv-1.lock", 0o644), ("uv-2.lock", 0o600), ("open.lock", 0o666)):
        (place / name).touch()
        (place / name).chmod(mode)
        os.chown(place / name, OTHER, OTHER)
    found = doctor("--only", "leftovers", uid=UID, env={"TMPDIR": str(place)}).json["findings"]
    (finding,) = [finding for finding in found if str(place) in finding["where"]["path"]]
    assert (finding["severity"], finding["places"]) == ("warning", 2)
    assert "uv-1.lock" in finding["fix"]
    assert "uv-2.lock" in finding["fix"]
    assert "open.lock" not in finding["fix"]


# -- user and home -----------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.root
def test_user_without_a_name_is_found(place: Path, doctor: Doctor) -> None:
    (finding,) = doctor("--only", "user", uid=UID, env={"HOME": str(place)}).json["findings"]
    assert finding["what"] == f"uid {UID} has no entry in the user database"
    assert finding["severity"] == "warning"
    assert finding["fix"] == f"export USER=uid{UID} LOGNAME=uid{UID}"
    (finding,) = doctor("--only", "user", uid=UID, env={"USER": "robot"}).json["findings"]
    assert finding["severity"] == "note", "whoever has USER set can live with it"


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(("version", "severity"), [("2.12.1", "error"), ("2.13.0", "warning")])
def test_torch_that_insists_on_a_name_is_found(
    place: Path, doctor: Doctor, version: str, severity: str, program: object
) -> None:
    """Before 2.13: KeyError: 'getpwuid(): uid not found'."""
    venv = place / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(f"#!/bin/sh\necho {pretend(place / 'site', 'torch', version)}\n")
    (venv / "bin" / "python").chmod(0o755)
    env = {"VIRTUAL_ENV": str(venv), "HOME": str(place)}
    (finding,) = doctor("--only", "user", uid=UID, env=env).json["findings"]
    assert finding["severity"] == severity
    assert (f"torch {version}, which is installed" in finding["why"]) == (severity == "error")


def test_user_with_name_and_home_is_not_blamed(tmp_path: Path) -> None:
    assert look_at_machine(machine({"HOME": str(tmp_path)}), "user", "home") == []


@needs_root
@pytest.mark.root
@pytest.mark.parametrize(
    ("home", "severity", "says"),
    [
        ("/no-such-home", "error", "which cannot be used: No such file or directory"),
        ("/", "error", "which is not writable"),
        ("relative", "error", "which is not an absolute path"),
        ("unset", "error", "HOME is not set"),
        ("theirs", "warning", f"which belongs to uid {OTHER}"),
    ],
)
def test_home_of_no_use_is_found(place: Path, doctor: Doctor, home: str, severity: str, says: str) -> None:
    if home == "theirs":
        os.chown(place, OTHER, UID)
        place.chmod(0o770)
        home = str(place)
    env = {} if home == "unset" else {"HOME": home}
    (finding,) = doctor("--only", "home", uid=UID, env=env).json["findings"]
    assert (finding["severity"], says in finding["what"]) == (severity, True), finding


@needs_root
@pytest.mark.root
def test_user_who_needs_no_home_is_only_warned(place: Path, doctor: Doctor) -> None:
    """Whoever has put every tool's cache elsewhere is only warned."""
    env = {"HOME": "/nonexistent", "XDG_CACHE_HOME": str(place), "TRITON_CACHE_DIR": str(place / "triton")}
    (finding,) = doctor("--only", "home", uid=UID, env=env).json["findings"]
    at_home = [row.name for row in table.ROWS if table.default_location(row, env).startswith("/nonexistent")]
    assert finding["severity"] == ("error" if at_home else "warning")
    for row in table.ROWS:
        env |= dict.fromkeys((*row.sets, *row.moved_by), str(place / row.name))
    (finding,) = doctor("--only", "home", uid=UID, env=env).json["findings"]
    assert finding["severity"] == "warning"


# -- libraries ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "version", "says"),
    [
        ("filelock", "3.20.4", "gives one lock to two processes"),
        ("filelock", "3.29.4", "gives one lock to two processes"),
        ("filelock", "3.29.5", ""),
        ("filelock", "3.20.3", ""),
        ("filelock", "3.20.0", "CVE-2025-68146"),
        ("triton", "3.1.0+git", "unique temporary names"),
        ("triton", "3.9.0", ""),
    ],
)
def test_bad_release_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, version: str, says: str
) -> None:
    site = pretend(tmp_path / "site", package, version)
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.setattr(releases, "interpreters", lambda _env: [sys.executable])
    findings = look_at_machine(machine(), "libraries")
    assert [(says in finding.what, finding.where.path) for finding in findings] == ([(True, str(site))] if says else [])
    if says:
        assert "-m pip install" in findings[0].fix


def test_release_in_the_active_environment_is_found(tmp_path: Path) -> None:
    """A real virtual environment that is not ours, found through VIRTUAL_ENV, asked without importing anything."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    pretend(site, "filelock", "3.25.0")
    here = machine({"VIRTUAL_ENV": str(tmp_path / "venv")})
    found = [one for one in look_at_machine(here, "libraries") if one.where.path == str(site)]
    assert len(found) == 1
    assert found[0].fix == f"{tmp_path / 'venv' / 'bin' / 'python'} -m pip install 'filelock>=3.29.5'"


def test_second_copy_on_the_search_path_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is imported is the first one."""
    good, bad = pretend(tmp_path / "good", "filelock", "3.30.0"), pretend(tmp_path / "bad", "filelock", "3.25.0")
    monkeypatch.setattr(sys, "path", [str(good), str(bad)])
    monkeypatch.setattr(releases, "interpreters", lambda _env: [sys.executable])
    assert look_at_machine(machine(), "libraries") == []


def test_broken_interpreter_does_not_stop_the_check(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    here = machine({"VIRTUAL_ENV": str(tmp_path)})
    assert not [one for one in look_at_machine(here, "libraries") if "could not be carried out" in one.what]


# -- rooms -------------------------------------------------------------------------------------------------------


def test_machine_without_a_place_for_a_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "candidates", lambda *_: [choose.Candidate("/proc", "test")])
    (finding,) = look_at_machine(machine(), "rooms")
    assert (finding.severity, "no directory on this machine can hold a room" in finding.what) == ("error", True)


def test_room_dir_that_is_passed_over_is_found(tmp_path: Path) -> None:
    (finding,) = look_at_machine(machine(room_dir=str(tmp_path / "gone")), "rooms")
    assert (finding.severity, "--room-dir" in finding.what) == ("warning", True)


def test_good_room_is_not_blamed(tmp_path: Path) -> None:
    assert look_at_machine(machine(room_dir=str(tmp_path)), "rooms") == []


@needs_root
@pytest.mark.root
def test_room_without_access_times_is_found(place: Path) -> None:
    (place / "mnt").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "noatime,size=1g", "none", str(place / "mnt")]
    subprocess.run(command, check=True)
    (finding,) = look_at_machine(machine(room_dir=str(place / "mnt")), "rooms")
    assert (finding.severity, "access time" in finding.what) == ("note", True)
