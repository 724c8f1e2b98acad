"""Where workers cannot be forked, each of them imports everything again: 20 seconds at the start, and after every crash.

What is counted here is who imported the conftest, and when in the order of things; never seconds.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from ondol.fleet.agent.spares import fits
from ondol.host import process, proctree
from suites import Suite

pytestmark = pytest.mark.warm_pytest

SPAWN = ("--ondol-start=spawn", "--ondol-judge=off", "--ondol-retries=0")
#: Every process that imports it says so, with the process that it belongs to; a test can wait for what others said.
CONFTEST = """
    import os, select, time
    LOG = os.environ["LOG"]
    def say(*words):
        with open(LOG, "a") as log:
            log.write(" ".join(map(str, (*words, os.getpid()))) + "\\n")
    def said(): return open(LOG).read().splitlines()
    def wait_for(condition):
        while not condition(said()):
            select.select([], [], [], 0.01)
    def imports(lines): return [line for line in lines if line.startswith("imported")]
    say("imported")
    def pytest_collection_modifyitems(): say("collected")
"""
#: The controller is one of those who import.
CRASHES = """
    import os, signal
    from conftest import say, wait_for
    def ready(number): return lambda lines: sum(line.startswith("collected") for line in lines) >= number
    def test_0(): say("ran")
    def test_1():
        say("ran")
        wait_for(ready({first}))
        say("crashes")
        os.kill(os.getpid(), signal.SIGKILL)
    def test_2(): say("ran")
    def test_3():
        say("ran")
        wait_for(ready({second}))
        say("crashes")
        os.kill(os.getpid(), signal.SIGKILL)
    def test_4(): say("ran")
    def test_5(): say("ran")
"""


@pytest.fixture
def counted(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """What this run learns is kept for the next one of this test only."""
    suite.variables["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    return suite.write(conftest=CONFTEST)


def runner_after(log: list[str], crash: int) -> str:
    """The process that ran the first item after the crash that stands at this place of the log."""
    return next(line.split()[1] for line in log[crash:] if line.startswith("ran"))


@pytest.mark.fault
def test_a_crash_costs_no_import_where_one_stands_by(counted: Suite) -> None:
    """Those who take over had collected before the crash."""
    counted.write(test_c=CRASHES.format(first=3, second=4))
    result = counted.pytest(*SPAWN)
    assert list(result.verdicts.values()) == ["passed", "crashed", "passed", "crashed", "passed", "passed"], (
        result.output
    )
    crashes = [number for number, line in enumerate(result.log) if line.startswith("crashes")]
    assert len(crashes) == 2
    for crash in crashes:
        successor = runner_after(result.log, crash)
        assert f"collected {successor}" in result.log[:crash], result.log
    assert not counted.survivors()


def test_workers_start_beside_the_collection_where_the_last_run_had_to_spawn(counted: Suite) -> None:
    """The controller collects only when a worker has: had they been started after it, both would wait for ever."""
    both = """
        from conftest import say, wait_for, imports
        import os
        if os.environ["BOTH"] == "yes":
            wait_for(lambda lines: len(imports(lines)) >= 3)
        def test_1(): say("ran")
        def test_2(): say("ran")
    """
    counted.write(test_a=both, test_b=both).variables["BOTH"] = "no"
    first = counted.pytest(*SPAWN, devices="cpu:2")
    assert first.record.counts() == {"passed": 4}, first.output
    counted.variables["BOTH"] = "yes"
    second = counted.pytest(*SPAWN, devices="cpu:2")
    assert second.record.counts() == {"passed": 4}, second.output
    early = {line.split()[1] for line in second.log if line.startswith("imported")}
    runners = {line.split()[1] for line in second.log if line.startswith("ran")}
    assert runners < early
    assert not counted.survivors()


MANY_PROCESSORS = """
    import os
    os.sched_getaffinity = lambda _pid: set(range(64))
"""


def test_the_one_that_stands_by_starts_beside_the_collection_too_where_processors_are_many(counted: Suite) -> None:
    """The controller collects only when the one worker and another one have begun to."""
    both = """
        import os
        from conftest import say, wait_for, imports
        if os.environ["BOTH"] == "yes":
            wait_for(lambda lines: len(imports(lines)) >= 3)
        def test_1(): say("ran")
    """
    counted.write(sitecustomize=MANY_PROCESSORS, test_a=both).variables["BOTH"] = "no"
    for both in ("no", "yes"):
        counted.variables["BOTH"] = both
        assert counted.pytest(*SPAWN).record.counts() == {"passed": 1}
    assert not counted.survivors()


def test_early_workers_are_dropped_without_trace_where_a_fork_is_possible_again(counted: Suite) -> None:
    counted.write(test_a="from conftest import say\ndef test_1(tmp_path): say('ran')\n")
    assert counted.pytest(*SPAWN).record.run.mode.startswith("spawned")
    forked = counted.pytest()
    assert forked.record.counts() == {"passed": 1}, forked.output
    assert forked.record.run.mode.startswith("forked")
    assert forked.journal is not None
    assert "spare" not in forked.output + forked.journal.read_text()
    assert not counted.survivors()
    again = counted.pytest()
    assert sum(line.startswith("imported") for line in again.log) == 1, "and the next run starts none"


@pytest.fixture(scope="module")
def had_to_spawn(new_suite: Callable[[], Suite]) -> Suite:
    """A suite whose one run so far is remembered beside it."""
    suite = new_suite().write(conftest=CONFTEST, test_a="def test_1(): pass\n")
    assert suite.pytest(*SPAWN).record.counts() == {"passed": 1}
    return suite


@pytest.mark.parametrize("ending", ["--collect-only", "-k=nothing", "--help"])
def test_early_workers_end_with_a_run_that_needs_none(had_to_spawn: Suite, tmp_path: Path, ending: str) -> None:
    shutil.copytree(f"{had_to_spawn.path}-state", tmp_path / "state")
    had_to_spawn.variables["XDG_STATE_HOME"] = str(tmp_path / "state")
    had_to_spawn.pytest(*SPAWN, ending)
    assert not had_to_spawn.survivors()


def test_one_that_opened_a_device_while_it_collected_does_not_stand_by(counted: Suite) -> None:
    """It would hold the device for as long as it waits; whoever crashes is replaced all the same."""
    (counted.path / "device").write_text("")
    holding = f"""
        import os
        from ondol.fleet import fork_check
        fork_check.DEVICE_FILES = ({str(counted.path / "device")!r},)
        HELD = os.open({str(counted.path / "device")!r}, os.O_RDONLY)
    """
    gone = """
        import os
        from conftest import say, wait_for
        def collected(lines): return [line.split()[1] for line in lines if line.startswith("collected")]
        def alive(pid):
            try: return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
            except OSError: return False
        def test_1(): pass
        def test_2():
            # The controller, this process, and one that is gone again.
            wait_for(lambda lines: len(collected(lines)) >= 3 and sum(map(alive, collected(lines))) == 2)
            say("left")
            os.abort()
        def test_3(): pass
    """
    counted.write(holding=holding, test_g="import holding\n" + textwrap.dedent(gone))
    result = counted.pytest(*SPAWN)
    assert list(result.verdicts.values()) == ["passed", "crashed", "passed"], result.output


def test_of_more_early_workers_than_items_one_is_left(counted: Suite) -> None:
    alone = """
        from conftest import say, wait_for, imports
        import os
        def alive(line): return os.path.exists(f"/proc/{line.split()[1]}/exe")
        def test_1(): wait_for(lambda lines: len(imports(lines)) >= 5 or os.environ["FIRST"] == "yes")
        def test_2(): wait_for(lambda lines: sum(map(alive, imports(lines))) <= 3)
    """
    counted.write(test_a=alone).variables["FIRST"] = "yes"
    group = ("-p", "no:randomly", "--dist=loadfile")
    for first in ("yes", "no"):
        counted.variables["FIRST"] = first
        result = counted.pytest(*SPAWN, *group, devices="cpu:4")
        assert result.record.counts() == {"passed": 2}, result.output


def test_a_spare_that_dies_while_it_collects_costs_nothing(counted: Suite) -> None:
    """Nobody had asked for it, and no second one is tried."""
    dies = """
        import os, signal
        from conftest import say, wait_for, said
        if sum(line.startswith("imported") for line in said()) == 3:
            say("dies")
            os.kill(os.getpid(), signal.SIGKILL)
        def test_1(): pass
        def test_2(): wait_for(lambda lines: any(line.startswith("dies") for line in lines))
        def test_3(): pass
        def test_4(): pass
    """
    counted.write(test_d=dies)
    result = counted.pytest(*SPAWN)
    assert result.record.counts() == {"passed": 4}, result.output
    assert sum(line.startswith("imported") for line in result.log) == 3


def test_one_stands_by_only_where_twice_its_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fits(worker=1 << 30, free=2 << 30)
    assert not fits(worker=1 << 30, free=(2 << 30) - 1)
    assert 0 < proctree.resident(os.getpid()) < proctree.free_memory()
    text = {"/proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8 kB\n", "/proc/self/cgroup": "0::/job\n"}
    monkeypatch.setattr(process, "read", lambda path: text.get(path, ""))
    assert proctree.free_memory() == 8192
    text |= {"/sys/fs/cgroup/job/memory.max": "5000\n", "/sys/fs/cgroup/job/memory.current": "1000\n"}
    assert proctree.free_memory() == 4000, "a container's limit counts"


NO_MEMORY = """
    import os
    from ondol.fleet.agent import launch
    from ondol.host import process, proctree
    proctree.free_memory = lambda: 0
    real = launch.SpawnLauncher.start
    def start(*arguments):
        with open(os.environ["LOG"], "a") as log:
            log.write("started\\n")
        return real(*arguments)
    launch.SpawnLauncher.start = start
"""


def test_no_memory_for_one_and_none_is_started(counted: Suite) -> None:
    counted.write(sitecustomize=NO_MEMORY, test_m="def test_1(): pass\ndef test_2(): pass\ndef test_3(): pass\n")
    result = counted.pytest(*SPAWN)
    assert result.record.counts() == {"passed": 3}, result.output
    assert result.log.count("started") == 1, "the worker"
