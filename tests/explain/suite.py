"""A suite as the nightly of seed 000 was: 21 tests fail from one fault of a shared cache, and others from their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from warm_pytest import WarmPytest

ROOT = Path(__file__).parents[2]
KEY = "ZOBLEQ4V2LXJDQ2SWSIVWDMGXI2DQVWBDKQ7CM5FJ4FBBRQTZH4A"
#: How many tests of each file the fault took down; in `test_mamba` inside Inductor's own exception.
TAKEN_DOWN = {"gla_chunkwise_bwd": 3, "gla_chunkwise_fwd": 3, "gla_recurrence": 3, "mamba": 6, "moe_fused_moe": 6}

_HEAD = f"""
import pytest

class InductorError(RuntimeError):
    __module__ = "torch._inductor.exc"

def put(number):
    raise PermissionError(13, "Permission denied", f"/ci-cache/triton/{KEY}/tmp.pid_{{number}}_1a82e68f")

def compile_with_inductor(number):
    try:
        put(number)
    except PermissionError as error:
        raise InductorError(f"PermissionError: {{error}}") from error
"""
_OWN_FAULTS = """
import pytest

def test_wrong_result():
    print("===== what the test prints itself =====")
    assert 1 == 2

class TestOps:
    def test_forward(self):
        raise KeyError("weights")

def test_disk():
    raise OSError(28, "No space left on device")

@pytest.fixture
def device():
    raise PermissionError(13, "Permission denied", "/ci-cache/triton/KEY/tmp.pid_7_x")

def test_needs_device(device):
    pass

def test_passes():
    print("cache: ok")
""".replace("KEY", KEY)


def write(folder: Path, *, own_faults: bool = True) -> None:
    ops = folder / "tests" / "ops"
    ops.mkdir(parents=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, count in TAKEN_DOWN.items():
        call = "compile_with_inductor" if name == "mamba" else "put"
        body = f'\n@pytest.mark.parametrize("shape", range({count}))\ndef test_fwd(shape):\n    {call}(shape)\n'
        (ops / f"test_{name}.py").write_text(_HEAD + body)
    if own_faults:
        (ops / "test_own.py").write_text(_OWN_FAULTS)


def run(folder: Path, *options: str) -> str:
    """What pytest prints of this suite, whose file `junit.xml` holds the same. Only one with xdist starts anew."""
    words = ["-p", "no:cacheprovider", "-p", "no:asyncio", "--junitxml=junit.xml", *options]
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # a second less
    if "-n" not in options:
        warm = WarmPytest("pytest", words, str(folder), env)
        said, _ = warm.communicate(timeout=240)
        warm.stdout.close()
        assert warm.returncode == 1, said
        return said
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**env, "PYTEST_PLUGINS": "xdist.plugin"},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout
