"""A tool that another package brings: the example of docs/how-to/add-a-tool.md, installed, used, and held to the contract."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from people import ROOT

PAGE = (ROOT / "docs" / "how-to" / "add-a-tool.md").read_text()
#: What a program does that uses MyKernels: reuse, or make and say so.
PROGRAM = """
import os, pathlib
entry = pathlib.Path(os.environ["MYKERNELS_CACHE"]) / ("add-" + "0" * 64)
if entry.exists():
    assert (entry / "kernel.bin").read_bytes() == b"MYK1 code"
    print("reused")
else:
    entry.mkdir(parents=True)
    (entry / "kernel.bin").write_bytes(b"MYK1 code")
    (entry / "kernel.json").write_text("{}")
    print("made")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The page's package as pip would install it."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    entry_points = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert entry_points is not None
    site = tmp_path / "site"
    info = site / "mykernels_ondol-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "mykernels_ondol.py").write_text(blocks[0])
    (site / "test_mykernels.py").write_text(blocks[1])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mykernels-ondol\nVersion: 1.0\n")
    name, _, place = entry_points[1].splitlines()[-1].partition(" = ")
    (info / "entry_points.txt").write_text(f"[ondol.tools]\n{name} = {json.loads(place)}\n")
    return site


def run(site: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **env}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, timeout=60, check=False)


def job(site: Path, store: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run(site, "ondol", "run", "--store", str(store), *options, "--", sys.executable, "-c", PROGRAM, **env)


def test_tool_of_another_package_stays_cold(site: Path, store_path: Path) -> None:
    cold = job(site, store_path, "--tools", "mykernels")
    assert (cold.returncode, cold.stdout) == (0, "made\n"), cold.stderr
    assert "mykernels: 0 filled, 0 used, 1 new, 1 published" in cold.stderr
    warm = job(site, store_path, "--tools", "mykernels", "--require-warm")
    assert (warm.returncode, warm.stdout) == (0, "reused\n"), warm.stderr
    assert "mykernels: 1 filled, 1 used, 0 new" in warm.stderr


def test_installing_a_package_changes_a_job(site: Path, store_path: Path, tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs")
    plain = job(site, store_path, MYKERNELS_CACHE=theirs)
    assert (plain.returncode, plain.stdout) == (0, "made\n")
    assert "mykernels" not in plain.stderr
    listed = json.loads(run(site, "ondol", "tools", "--json").stdout)["tools"]
    (ours,) = [tool for tool in listed if tool["name"] == "mykernels"]
    assert ours["in_a_job"] == "by name"


def test_raw_cache_of_such_a_tool_cannot_be_adopted(site: Path, store_path: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    subprocess.run([sys.executable, "-c", PROGRAM], env={"MYKERNELS_CACHE": str(raw)}, check=True)
    adopted = run(site, "ondol", "store", "adopt", str(raw), "--tool", "mykernels", "--store", str(store_path))
    assert "adopted 1 entry" in adopted.stdout, adopted.stderr
    assert job(site, store_path, "--tools", "mykernels").stdout == "reused\n"


def test_shipped_suite_cannot_be_used_outside(site: Path) -> None:
    """The page's test module, with pytest and nothing of this checkout but the package itself."""
    suite = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "test_mykernels.py")
    done = run(site, *suite)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    code = (site / "mykernels_ondol.py").read_text()
    for part in (', needs=(r"kernel\\.bin", r"kernel\\.json")', "tmp-.*"):
        assert part in code
        (site / "mykernels_ondol.py").write_text(code.replace(part, ""))
        assert " failed" in run(site, *suite).stdout, part


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("TOOL = object()", "AttributeError"),
        ("from ondol.tools.triton import Triton; TOOL = Triton()", "not a Row of that name"),
    ],
)
def test_broken_package_of_others_takes_a_job_down(site: Path, store_path: Path, damage: str, said: str) -> None:
    (site / "mykernels_ondol.py").write_text(damage + "\n")
    assert job(site, store_path, MYKERNELS_CACHE=str(site / "x")).returncode == 0
    assert run(site, "ondol", "tools").returncode == 0
    asked = job(site, store_path, "--tools", "mykernels")
    assert asked.returncode != 0
    assert said in asked.stderr
