"""The check of a CUDA context and the health probe, against a driver built here that can turn sticky."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "driver"
    folder.mkdir()
    source = Path(__file__).parents[1] / "children" / "fakecuda.c"
    flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["gcc", *flags, "-o", folder / "libcuda.so.1", source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return folder


KERNELS = """
    import ctypes, pytest
    cuda = None
    @pytest.fixture
    def launch():
        global cuda
        if cuda is None:
            cuda = ctypes.CDLL("libcuda.so.1")
            cuda.cuInit(0)
        return cuda.launch
    @pytest.mark.parametrize("n", range(40))
    def test_kernel(launch, n):
        assert launch(n in (10, 25)) == 0
"""


def test_two_bad_kernels_among_forty_cost_two(suite, driver) -> None:
    suite.write(test_k=KERNELS)
    assert "30 failed, 10 passed" in suite.plain().output
    result = suite.pytest(devices="sim:2")
    assert result.record.counts() == {"passed": 38, "failed": 2}
    assert not any(item.flaky for item in result.record.items)
    bad = [item for item in result.record.items if item.verdict == "failed"]
    assert all("CUDA error 700 (an illegal memory access was encountered)" in item.why for item in bad)


def test_where_nobody_loaded_a_driver_nothing_is_loaded(suite, driver) -> None:
    suite.write(test_k="def test_1(): pass\ndef test_2(): assert 'libcuda' not in open('/proc/self/maps').read()\n")
    assert suite.pytest().record.counts() == {"passed": 2}


def probe(**environment: str) -> subprocess.CompletedProcess[str]:
    import os

    command = [sys.executable, "-m", "ondol.host.gpu_context"]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


def test_the_probe_passes_on_a_healthy_device(driver) -> None:
    assert probe().returncode == 0


def test_the_probe_says_what_is_wrong(driver) -> None:
    sick = probe(FAKE_CUDA_HEALTH="214")
    assert sick.returncode == 1
    assert "CUDA error 214 (uncorrectable ECC error encountered)" in sick.stdout


def test_without_a_driver_the_probe_fails_and_says_so(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    from ondol.fleet.devices import nvidia_count

    if nvidia_count():
        pytest.skip("this machine has a real driver")
    assert "no CUDA driver" in probe().stdout
