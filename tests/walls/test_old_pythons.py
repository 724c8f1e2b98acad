"""A Python that is too old for Ondol, or an Ondol with parts missing: the guarded command runs, with one warning."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from people import ROOT
from walls import one_file

SOURCE = ROOT / "src"
#: Where Pythons of other versions are commonly kept.
PLACES = (Path.home() / ".pyenv/versions", Path("/opt/hostedtoolcache/Python"))


def old_pythons() -> list[str]:
    found = [f"/usr/bin/python3.{minor}" for minor in range(6, 10)]
    for place in PLACES:
        found += map(str, sorted(place.glob("3.[6-9].*/bin/python3")))
    return [path for path in found if os.access(path, os.X_OK)]


def guard(python: str, *words: str, path: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [python, "-m", "ondol", *words], env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", ["__init__.py", "__main__.py", "unguarded.py"])
def test_entry_is_written_for_old_pythons_too(name: str) -> None:
    ast.parse((SOURCE / "ondol" / name).read_text(), feature_version=(3, 6))
    assert "__future__" not in (SOURCE / "ondol" / name).read_text(), "3.6 does not know annotations there"


@pytest.mark.skipif(not old_pythons(), reason="needs a Python older than 3.10")
@pytest.mark.parametrize("python", old_pythons())
def test_old_python_does_not_stop_the_install(python: str) -> None:
    for words in (["--", "sh", "-c", "echo ran; exit 3"], ["--cache", "/x", "sh", "-c", "echo ran; exit 3"]):
        done = guard(python, "guard", *words)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (3, "ran\n")
        assert line.startswith("ondol: warning: the command runs unguarded: this Python is 3.")
    missing = guard(python, "guard", "--", "no-such-command")
    assert missing.returncode == 127
    for others in (["run", "--", "true"], ["guard"], ["doctor"], []):
        done = guard(python, *others)
        assert (done.returncode, "needs 3.10 or newer" in done.stderr, "Traceback" in done.stderr) == (125, True, False)


@pytest.mark.skipif(not old_pythons(), reason="needs a Python older than 3.10")
def test_old_python_does_not_stop_the_install_from_one_file(tmp_path: Path) -> None:
    pyz = one_file.build(tmp_path / "ondol.pyz", with_libzstd=False)
    for python in old_pythons():
        words = [python, str(pyz), "guard", "--", "sh", "-c", "echo ran; exit 3"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "ran\n", 1), done.stderr


@pytest.mark.parametrize("part", ["zstandard", "ondol.guard.guarded_command", "ondol.guard.lock", "ondol.cli.flags"])
def test_missing_part_does_not_stop_the_install(tmp_path: Path, part: str) -> None:
    """Parts of ours too: an interrupted installation, or a `pip install` that is replacing them."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {part!r} or name.startswith({part + '.'!r}):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{SOURCE}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "ondol", "guard", "--cache", str(tmp_path), "--", "sh", "-c", "echo ran; exit 3"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "ran\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 1
