"""What a pytest pays that has Ondol installed and does not use it."""

from __future__ import annotations

import os
import subprocess
import sys

LOADED = """
import sys, pytest
class Look:
    def pytest_sessionfinish(self):
        print("LOADED", *sorted(m for m in sys.modules if m.startswith("ondol")))
sys.exit(pytest.main([*sys.argv[1:], "-p", "ondol.pytest_plugin", "-p", "no:cacheprovider", "--co", "-q"], plugins=[Look()]))
"""


def loaded(tmp_path, *arguments: str) -> set[str]:
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    command = [sys.executable, "-c", LOADED, str(tmp_path), *arguments]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return set(line.split()[1:])


def test_a_pytest_that_does_not_use_us_does_not_load_the_run_wing(tmp_path) -> None:
    found = loaded(tmp_path)
    assert "ondol.options" in found
    assert not {m for m in found if m.split(".")[1:2] in (["jobs"], ["report"], ["engines"], ["store"], ["host"])}
    assert "ondol.pytest_runner" not in found
    assert "ondol.fleet.controller.controller" not in found


def test_every_option_of_ours_starts_us(tmp_path) -> None:
    assert "ondol.pytest_runner" in loaded(tmp_path, "--ondol-devices=cpu:1")


def test_the_ini_file_is_asked(tmp_path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nondol_devices = cpu:1\n")
    assert "ondol.pytest_runner" in loaded(tmp_path)


def test_pytest_does_not_rewrite_an_ondol_that_is_installed(tmp_path) -> None:
    """It does so with every module of a distribution that has a plugin: parsed anew where no bytecode is written."""
    about = tmp_path / "installed" / "as_a_wheel-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: as-a-wheel\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[pytest11]\nas-a-wheel = colorsys\n")
    (about / "RECORD").write_text("ondol/__init__.py,,\nondol/pytest_plugin.py,,\n")
    look = LOADED.replace('*sorted(m for m in sys.modules if m.startswith("ondol"))', "*rewritten()").replace(
        "class Look",
        "def rewritten():\n"
        "    ours = {n: m.__spec__.loader for n, m in sys.modules.items() if n.startswith('ondol')}\n"
        "    return [n for n, loader in ours.items() if type(loader).__name__ == 'AssertionRewritingHook']\n"
        "class Look",
    )
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": str(about.parent)}
    command = [sys.executable, "-c", look, str(tmp_path), "-p", "no:ondol", "--ondol-devices=cpu:1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    found = set(line.split()[1:])
    assert "ondol.pytest_plugin" in found, "pytest rewrites nothing here: this test sees nothing"
    assert not {name for name in found if name.startswith(("ondol.pytest_runner", "ondol.fleet.c", "ondol.report"))}
