"""Broken entries in a tool's cache, and what they mean with the version that is installed."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import pytest

from doctor_runs import look, machine, type_in
from handmade import key_of, write_triton_entry
from ondol.doctor import gather
from ondol.doctor.walk import Bounds
from ondol.tools import registry, table

pytestmark = pytest.mark.warm


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    for number in range(4):
        write_triton_entry(path, number)
    return path


def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, version: str) -> Path:
    """A directory on the search path, before all others, that holds the metadata of a package and nothing else."""
    site = tmp_path / f"site-{package}-{version}"
    info = site / f"{package}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(site))
    return site


def settled(path: Path) -> None:
    """Old enough not to be in the making."""
    os.utime(path, (time.time() - 3600,) * 2)


def test_zero_byte_kernel_is_found(cache: Path) -> None:
    """Triton takes it for a hit."""
    (cache / key_of(1) / "add.cubin").write_bytes(b"")
    (finding,) = look(cache, "entries")
    assert (finding.severity, finding.places) == ("error", 1)
    assert "add.cubin is empty" in finding.what
    assert finding.where.path.startswith(str(cache / key_of(1)))
    type_in(finding.fix)
    assert look(cache, "entries") == []


@pytest.mark.parametrize(("version", "severity"), [("3.7.1", "error"), ("3.6.0", "error"), ("3.9.0", "warning")])
def test_trimmed_cache_is_found(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, severity: str
) -> None:
    """`find -mtime -delete` removes a file here and there: Triton up to 3.7.1 crashes on what is left."""
    pretend(monkeypatch, tmp_path, "triton", version)
    (cache / key_of(1) / "add.cubin").unlink()
    (cache / key_of(2) / "add.json").unlink()
    for number in (1, 2):
        settled(cache / key_of(number))
    findings = look(cache, "entries")
    assert [(finding.severity, finding.places) for finding in findings] == [(severity, 2)]
    assert "Unknown key" in findings[0].why
    assert f"rm -r {cache / key_of(1)} {cache / key_of(2)}" == findings[0].fix


def test_entry_in_the_making_is_not_blamed(cache: Path) -> None:
    (cache / key_of(9)).mkdir()
    (cache / key_of(1) / "add.cubin").unlink()
    assert look(cache, "entries") == []
    settled(cache / key_of(9))
    (finding,) = look(cache, "entries")
    assert (finding.severity, finding.where.path) == ("note", str(cache / key_of(9)))


def test_entry_that_reads_files_elsewhere_is_found(cache: Path) -> None:
    group = cache / key_of(1) / "__grp__add.json"
    group.write_text(group.read_text().replace(key_of(1), key_of(2)))
    (finding,) = look(cache, "entries")
    assert (finding.severity, "outside" in finding.what) == ("warning", True)


def test_cache_of_another_tool_is_recognised(tmp_path: Path) -> None:
    """By the look of its entries alone: nothing in the environment says whose it is."""
    cache = tmp_path / "somewhere"
    cache.mkdir()
    for number in range(3):
        (cache / f"jit_f-{number:064x}-cache").write_bytes(zlib.compress(b"program"))
    (cache / f"jit_g-{9:064x}-cache").write_bytes(b"")
    (subject,) = gather.subjects(machine(), [str(cache)], Bounds())
    assert subject.tool
    assert subject.tool.name == "jax"
    (finding,) = look(cache, "entries")
    assert (finding.severity, finding.places) == ("warning", 1)
    type_in(finding.fix)
    assert look(cache, "entries") == []
    assert len(list(cache.iterdir())) == 3


def test_guarded_tool_is_not_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of class E have no code that understands their entries; their caches get the other checks."""
    row = table.Row("guarded", "E", "a tool of that class", "1", {}, (str(tmp_path),))
    monkeypatch.setattr(registry, "everything", lambda: [row, *table.ROWS])
    (subject,) = gather.subjects(machine(), [str(tmp_path)], Bounds())
    assert subject.tool == row
    assert look(tmp_path, "entries", "owners") == []


def test_bound_is_kept_and_said(cache: Path) -> None:
    (finding,) = [one for one in look(cache, "entries", bounds=Bounds(entries=2)) if one.check == "entries"]
    assert (finding.severity, finding.what) == ("note", f"only the first 2 entries of {cache} were checked")


def test_cache_of_no_known_tool_is_not_scanned_as_one(tmp_path: Path) -> None:
    (tmp_path / "unknown" / "thing").mkdir(parents=True)
    assert look(tmp_path / "unknown", "entries") == []
