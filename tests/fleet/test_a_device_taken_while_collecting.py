"""A suite puts a tensor on its device while it is collected: no worker can be a fork, and each one imports everything.

The machine is the fake one of `test_devices_of_different_models`. What is counted is who collected, and when in the
order of things; never seconds.
"""

from __future__ import annotations

import pytest

from fleet.test_devices_of_different_models import machine
from fleet.test_paying_for_imports_twice import CONFTEST, runner_after
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

ARGUMENTS = ("--ondol-judge=off", "--ondol-retries=0")
#: The device is this process's for good: it must be the one that its tests are told about.
TAKES = """
    import os, signal, torch
    from conftest import say, wait_for, imports
    HELD = torch.ones(1, device="cuda")
    SEEN = os.environ.get("CUDA_VISIBLE_DEVICES")
    def ran():
        assert SEEN == os.environ["CUDA_VISIBLE_DEVICES"]
        say("ran")
    def collected(number): return lambda lines: sum(line.startswith("collected") for line in lines) >= number
"""


@pytest.fixture
def taken(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    suite.variables["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    return machine(suite.write(conftest=CONFTEST, takes=TAKES), gpus="Fake H1,Fake H1")


def passes(result: Result, items: int) -> None:
    assert result.record.counts() == {"passed": items}, result.output
    assert "torch.cuda was initialised during collection" in result.record.run.mode


def test_its_workers_start_beside_the_collection_each_with_its_device(taken: Suite) -> None:
    """The controller collects only when both workers have begun to; and nobody else imports anything for them."""
    both = """
        import os
        from takes import *
        if os.environ["BOTH"] == "yes":
            wait_for(lambda lines: len(imports(lines)) >= 3)
        def test_1(): ran()
        def test_2(): ran()
    """
    taken.write(test_a=both, test_b=both).variables["BOTH"] = "no"
    passes(taken.pytest(*ARGUMENTS, devices="cuda"), 4)
    taken.variables["BOTH"] = "yes"
    second = taken.pytest(*ARGUMENTS, devices="cuda")
    passes(second, 4)
    collected = next(number for number, line in enumerate(second.log) if line.startswith("collected"))
    early = {line.split()[1] for line in second.log[:collected]}
    assert {line.split()[1] for line in second.log if line.startswith("ran")} < early
    assert not taken.survivors()


CRASHES = """
    import pytest
    from takes import *
    @pytest.mark.parametrize("n", range(6))
    def test_0(n, device): ran()
    def test_crash_{me}(device):
        # The controller, two workers, and one that stands by on each device.
        wait_for(collected(5))
        say("crashes")
        os.kill(os.getpid(), signal.SIGKILL)
    def test_after(device): ran()
"""


@pytest.mark.fault
def test_a_crash_costs_no_import_on_any_of_its_devices(taken: Suite) -> None:
    """One stands by on each device, because it cannot go to another one."""
    taken.write(test_a=CRASHES.format(me="a"), test_b=CRASHES.format(me="b"))
    result = taken.pytest(*ARGUMENTS, "--dist=loadfile", devices="cuda")
    assert result.record.counts() == {"passed": 14, "crashed": 2}, result.output
    crashes = [number for number, line in enumerate(result.log) if line.startswith("crashes")]
    assert len(crashes) == 2
    ready = {line.split()[1] for line in result.log[: crashes[0]] if line.startswith("collected")}
    assert {line.split()[1] for line in result.log if line.startswith("ran")} < ready
    assert runner_after(result.log, crashes[1]) in ready
    assert not taken.survivors()


@pytest.mark.fault
def test_none_stands_by_on_a_device_whose_memory_tests_need(taken: Suite) -> None:
    gone = """
        from takes import *
        def alive(line):
            try: return open(f"/proc/{line.split()[1]}/stat").read().rpartition(")")[2].split()[0] != "Z"
            except OSError: return False
        def test_1(): ran()
        def test_2():
            ours = lambda lines: [line for line in lines if line.startswith("collected")]
            # The controller, this process, and one that is gone again.
            wait_for(lambda lines: len(ours(lines)) >= 3 and sum(map(alive, ours(lines))) == 2)
        def test_3(): ran()
    """
    taken.write(test_g=gone).variables["FAKE_FREE"] = str(7 << 30)
    passes(taken.pytest(*ARGUMENTS, devices="cuda:0"), 3)
    assert not taken.survivors()
