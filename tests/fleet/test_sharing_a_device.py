"""Several workers on one device: really at once where they fit together, never where they do not."""

from __future__ import annotations

import os
import subprocess

import pytest

pytestmark = pytest.mark.warm_pytest

#: Each of two tests says that it is there and waits for the other: neither ends unless both run at once.
MEETING = """
    import os
    def meet(mine, other):
        fd = os.open(mine, os.O_RDWR)          # both ends: opening waits for nobody
        theirs = os.open(other, os.O_RDWR)
        os.write(theirs, b"here")
        assert os.read(fd, 4) == b"here"
"""
ONE = "import os, pytest, meeting\n@pytest.mark.ondol(timeout=200)\ndef test_{me}(device):\n    meeting.meet('{me}.fifo', '{other}.fifo')\n    assert device.names == ('{device}',)\n"

#: An NVML that knows one device with 10 GiB, for a machine that has none.
NVML = """
    class _Memory: total = 10 << 30
    def nvmlInit(): pass
    def nvmlShutdown(): pass
    def nvmlDeviceGetCount(): return 1
    def nvmlDeviceGetHandleByIndex(n): return n
    def nvmlDeviceGetName(handle): return "Fake H1"
    def nvmlDeviceGetMemoryInfo(handle): return _Memory
    def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
"""


@pytest.fixture
def one_gpu(suite, monkeypatch):
    """A suite on a machine with one device of 10 GiB."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = suite.path / "driver"  # without its library nobody asks
    driver.mkdir()
    build = ["gcc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", driver / "libnvidia-ml.so.1"]
    subprocess.run(build, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    return suite.write(pynvml=NVML)


def meeting(suite, device: str, marker: str = "") -> None:
    for me, other in (("left", "right"), ("right", "left")):
        os.mkfifo(suite.path / f"{me}.fifo")
        suite.write(**{f"test_{me}": ONE.format(me=me, other=other, device=device).replace("@", f"{marker}\n@", 1)})
    suite.write(meeting=MEETING)


def test_two_workers_on_one_device_really_run_at_once(suite) -> None:
    """A second slot that only waits for the first would deadlock here, and be ended by the deadline."""
    meeting(suite, "sim0")
    result = suite.pytest("--ondol-workers-per-device=2", "--ondol-retries=0", "--ondol-judge=off", devices="sim:1")
    assert result.verdicts == {"test_left": "passed", "test_right": "passed"}, result.output
    attempts = [item.attempts[0] for item in result.record.items]
    assert {a.device for a in attempts} == {"sim0"}
    assert len({a.worker for a in attempts}) == 2


def test_one_worker_on_a_device_never_shares_it(suite) -> None:
    """The counter-proof: without the option the same two tests cannot meet."""
    meeting(suite, "sim0")
    for me in ("left", "right"):
        path = suite.path / f"test_{me}.py"
        path.write_text(path.read_text().replace("timeout=200", "timeout=1"))
    result = suite.pytest("--ondol-retries=0", "--ondol-judge=off", "--ondol-grace=0.1", devices="sim:1")
    assert "timeout" in result.verdicts.values()


def test_budgets_that_fit_together_run_at_once(one_gpu) -> None:
    meeting(one_gpu, "cuda0", marker="@pytest.mark.ondol(memory='5GiB')")
    result = one_gpu.pytest("--ondol-workers-per-device=2", "--ondol-retries=0", "--ondol-judge=off", devices="cuda")
    assert result.verdicts == {"test_left": "passed", "test_right": "passed"}, result.output


def test_budgets_that_do_not_fit_together_never_overlap(one_gpu) -> None:
    """Each heavy item makes a file that must not exist yet; three workers would all make it at once."""
    heavy = """
        import os, pytest, select
        def note(): open(f"worker-{os.getpid()}", "w").close()
        @pytest.mark.ondol(memory="6GiB")
        @pytest.mark.parametrize("n", range(3))
        def test_heavy(n):
            note()
            fd = os.open("on-the-device", os.O_CREAT | os.O_EXCL)
            select.select([], [], [], 0.05)  # somebody who may come in does so now
            os.close(fd); os.unlink("on-the-device")
        @pytest.mark.ondol(memory="1GiB", timeout=200)
        def test_light():
            # However late the others start: one worker alone must not have run it all.
            note()
            while sum(name.startswith("worker-") for name in os.listdir()) < 2: select.select([], [], [], 0.01)
        """
    one_gpu.write(test_a=heavy, test_b=heavy, test_c=heavy)
    result = one_gpu.pytest("--ondol-workers-per-device=3", "--ondol-judge=off", "--ondol-retries=0", devices="cuda")
    assert set(result.verdicts.values()) == {"passed"}, result.output
    assert len(result.record.items) == 12
    assert len({a.worker for item in result.record.items for a in item.attempts}) > 1, "one worker ran it all"


def test_an_item_that_declares_more_than_any_device_has_is_an_error_at_once(one_gpu) -> None:
    one_gpu.write(
        test_a="import pytest\n@pytest.mark.ondol(memory='20GiB')\ndef test_big(): pass\ndef test_small(): pass\n"
    )
    result = one_gpu.pytest(devices="cuda")
    assert result.verdicts == {"test_big": "error", "test_small": "passed"}
    assert "declares" in result.output
    assert "of device memory" in result.output


def test_an_undeclared_item_counts_as_an_even_share(one_gpu) -> None:
    """Two workers: half of the device each, so a budget of more than half waits for it and still runs."""
    one_gpu.write(
        test_a="""
        import os, pytest, select
        def alone():
            fd = os.open("on-the-device", os.O_CREAT | os.O_EXCL)
            select.select([], [], [], 0.05)
            os.close(fd); os.unlink("on-the-device")
        @pytest.mark.ondol(memory="6GiB")
        def test_heavy(): alone()
        """,
        test_b="import pytest, test_a\n@pytest.mark.parametrize('n', range(4))\ndef test_undeclared(n): assert not test_a.os.path.exists('on-the-device')\n",
    )
    result = one_gpu.pytest("--ondol-workers-per-device=2", "--ondol-judge=off", devices="cuda")
    assert set(result.verdicts.values()) == {"passed"}, result.output
