"""Where the wings meet: `ondol test` runs its suite in a room that is filled before and harvested after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from people import ROOT

SUITE = """
import json, os, subprocess, sys
import pytest

@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_kernel(name, device):
    done = subprocess.run([sys.executable, os.environ["STANDIN"], name], capture_output=True, text=True, check=True)
    with open(os.environ["SEEN"], "a") as file:
        file.write(done.stdout)
    assert os.environ["TRITON_CACHE_DIR"].startswith(os.environ["ONDOL_ROOM"])
"""


@pytest.fixture
def run(tmp_path: Path, store_path: Path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    seen = tmp_path / "seen"
    env = {
        **os.environ,
        "STANDIN": str(ROOT / "tests" / "programs" / "standin.py"),
        "SEEN": str(seen),
        "LOGNAME": "ada",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a second less for each run; `ondol test` names its own
    }

    def start(*options: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, object]]]:
        seen.unlink(missing_ok=True)
        command = [sys.executable, "-m", "ondol", "test", "--devices=cpu:2", "--store", str(store_path), *options]
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "test_suite.py"],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done, [json.loads(line) for line in seen.read_text().splitlines()] if seen.exists() else []

    return start


def test_suite_does_not_compile_again_what_another_run_compiled(run) -> None:
    done, kernels = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(k["compiled"] for k in kernels) == 3
    assert "3 published" in done.stderr
    done, kernels = run("--require-warm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [k["hits"] for k in kernels] == [1, 1, 1]
    assert "3 filled, 3 used, 0 new" in done.stderr


def test_red_suite_publishes_what_it_compiled(run, tmp_path: Path, store_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE + "\ndef test_fails():\n    assert False\n")
    done, _ = run()
    assert done.returncode == 1
    assert "new entries are published: publish = auto; not a CI job; the command ended with status 1" in done.stderr
    assert len(list(store_path.rglob("*.pack"))) == 3


def test_store_trouble_does_not_fail_a_suite(run, store_path: Path) -> None:
    (store_path / "ondol-store.json").write_text("{")
    done, kernels = run()
    assert done.returncode == 0
    assert len(kernels) == 3
    assert "running cold" in done.stderr


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_share_one_precompiled_header(run, tmp_path: Path, start: str) -> None:
    """Inductor keeps 150 MB of headers below TMPDIR, whatever it is told, and each worker has a TMPDIR of its own."""
    (tmp_path / "test_suite.py").write_text(
        "import os, pytest, tempfile\n"
        "@pytest.mark.parametrize('n', range(2))\n"
        "def test_one_place(n, device):\n"
        "    assert tempfile.gettempdir() != os.path.join(os.environ['ONDOL_ROOM'], 'tmp')\n"
        "    place = os.path.join(tempfile.gettempdir(), 'torchinductor_' + os.environ['LOGNAME'])\n"
        "    assert os.path.samefile(place, os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    )
    done, _ = run("--start", start)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
