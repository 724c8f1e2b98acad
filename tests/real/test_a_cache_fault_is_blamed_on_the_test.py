"""Seed 000's A03 with real Triton: the nightly's tests die in a foreign cache, and the report says that operators are wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from people import ROOT, Program, needs_root

pytestmark = [pytest.mark.real, pytest.mark.root, needs_root]
UID = 1000


@pytest.fixture
def nightly(public: Path) -> Iterator[Path]:
    """A checkout whose tests compile kernels, one of which is wrong."""
    path = public / "nightly"
    path.mkdir()
    shutil.copy(ROOT / "examples" / "demo" / "kernels.py", path)
    (path / "test_ops.py").write_text(
        "import kernels\ndef test_compiles():\n    kernels.main(1)\ndef test_wrong_operator():\n    assert 1 == 2\n"
    )
    for one in (path, *path.iterdir()):
        os.chown(one, UID, UID)
    yield path
    shutil.rmtree(path)


def run(program: Program, nightly: Path, cache: Path, *, umask: int = 0o022, uid: int | None = None) -> dict[str, str]:
    """Test → what its report calls it."""
    report = nightly / f"report-{uid}.xml"
    words = ["-p", "no:cacheprovider", "-q", "--ondol-devices=cpu:1", "--ondol-retries=0", f"--junitxml={report}"]
    env = {"TRITON_CACHE_DIR": str(cache), "HOME": str(nightly), "XDG_STATE_HOME": str(nightly / f"state-{uid}")}
    ended: subprocess.CompletedProcess[str] = program.run(
        [program.python, "-m", "pytest", *words, "test_ops.py"], uid=uid, umask=umask, cwd=nightly, env=env
    )
    assert report.exists(), ended
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return {case.attrib["name"]: _word(case) for case in cases}


def _word(case: ElementTree.Element) -> str:
    if case.find("failure") is None:
        return "passed"
    return next(one.attrib["value"] for one in case.iter("property") if one.attrib["name"] == "ondol_reason")


def test_a_foreign_cache_is_called_a_cache_fault_and_a_wrong_operator_a_failure(
    program: Program, nightly: Path, public: Path
) -> None:
    cache = public / "everybodys-cache"
    cache.mkdir()
    cache.chmod(0o777)
    assert run(program, nightly, cache, umask=0o077)["test_compiles"] == "passed"
    told = run(program, nightly, cache, uid=UID)
    assert told["test_compiles"].startswith("cache fault: Triton has to write into an entry of its cache"), told
    assert told["test_wrong_operator"] == "assert 1 == 2"
    shutil.rmtree(cache)
