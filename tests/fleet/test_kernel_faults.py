"""What the kernel itself does to a worker: it ends one for want of memory, or does not end one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.root]

MIB = 1 << 20


def _group(controller: str, suite) -> Iterator[Path]:
    """A control group of this test's own, emptied and removed after it."""
    if os.geteuid() != 0:
        pytest.skip("making a control group needs root")
    top = Path("/sys/fs/cgroup")
    mounted = top / controller if (top / controller).is_dir() else top
    group = mounted / f"ondol-{suite.tag}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        thaw(group)
        while members := (group / "cgroup.procs").read_text().split():
            for pid in members:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue
        group.rmdir()


def thaw(group: Path) -> None:
    for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        if (group / name).exists():
            (group / name).write_text(word)


@pytest.fixture
def memory_group(suite) -> Iterator[Path]:
    """Whoever is in it may use 256 MiB together, and no swap."""
    for group in _group("memory", suite):
        limits = {"memory.limit_in_bytes": 256 * MIB, "memory.max": 256 * MIB, "memory.memsw.limit_in_bytes": 256 * MIB}
        limits["memory.swap.max"] = 0
        known = [name for name in limits if (group / name).exists()]
        if not {"memory.limit_in_bytes", "memory.max"} & set(known):
            pytest.skip("the memory controller is not available here")
        for name in known:
            (group / name).write_text(str(limits[name]))
        yield group


@pytest.fixture
def freezer(suite) -> Iterator[Path]:
    """A frozen process takes no signal, not even SIGKILL, until it is thawed: version 1 of the controller only."""
    for group in _group("freezer", suite):
        if not (group / "freezer.state").exists():
            pytest.skip("no freezer controller of version 1: a frozen process would die of SIGKILL")
        yield group


def through(suite, prelude: str, *arguments: str) -> None:
    """Have the suite's runs begin with a few words of Python in the process that becomes the run."""
    start = suite.start
    script = f"import os, sys; {prelude}; os.execv(sys.executable, [sys.executable, *sys.argv[{len(arguments) + 2}:]])"

    def started(command: list[str], **kwargs: object) -> subprocess.Popen[str]:
        return start([sys.executable, "-c", script, *arguments, *command], **kwargs)

    suite.start = started


def test_the_kernels_out_of_memory_killer_costs_one_verdict(suite, memory_group) -> None:
    """The largest process is the worker with the greedy item: it dies by SIGKILL, the rest of the run lives on."""
    suite.write(
        test_m="""
        import pytest
        @pytest.mark.parametrize("n", range(3))
        def test_before(n): pass
        def test_greedy():
            print("about to ask for too much", flush=True)
            kept = []
            while True: kept.append(b"x" * (8 << 20))
        @pytest.mark.parametrize("n", range(3))
        def test_after(n): assert len(bytearray(16 << 20))
        """
    )
    through(suite, "open(sys.argv[1], 'w').write('0')", str(memory_group / "cgroup.procs"))
    result = suite.pytest("--ondol-retries=0", devices="cpu:1")
    assert result.verdicts.pop("test_greedy") == "crashed", result.output
    verdicts = {name: verdict for name, verdict in result.verdicts.items() if name != "test_greedy"}
    assert len(verdicts) == 6
    assert set(verdicts.values()) == {"passed"}, result.output
    (greedy,) = (item for item in result.record.items if item.verdict == "crashed")
    assert "SIGKILL" in greedy.why
    assert "out-of-memory" in greedy.why
    assert "about to ask for too much" in greedy.attempts[-1].output["stdout"]
    assert result.status == 1
    assert "the agent died" not in result.output
    assert suite.all_gone()


FROZEN = """
    import os, pytest
    @pytest.mark.ondol(timeout=5)
    def test_stuck():
        if os.environ["FREEZE"] == "once":
            try: os.close(os.open("frozen-once", os.O_CREAT | os.O_EXCL))
            except FileExistsError: return
        group = os.environ["GROUP"]
        open(group + "/cgroup.procs", "w").write("0")
        open(group + "/freezer.state", "w").write("FROZEN")
        while True: pass
"""


@pytest.mark.parametrize(("freeze", "front"), [("once", False), ("always", True)])
def test_a_worker_that_no_signal_ends_loses_its_device_and_not_the_run(
    suite, freezer, monkeypatch, freeze, front
) -> None:
    """Nothing may wait for such a process; its item moves once, the rest runs elsewhere, and the run ends."""
    monkeypatch.setenv("GROUP", str(freezer))
    monkeypatch.setenv("FREEZE", freeze)
    suite.write(
        test_a=FROZEN, test_b="import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_n(n, device): pass\n"
    )
    # Such a process keeps the run's standard output open: a pipe would not end.
    through(suite, "f = os.open('out', os.O_CREAT | os.O_WRONLY); os.dup2(f, 1); os.dup2(f, 2)")
    flags = {"retries": 0, "grace": 0.2, "reap-timeout": 1}
    run = suite.ondol if front else suite.pytest
    result = run(*(f"--{'' if front else 'ondol-'}{name}={value}" for name, value in flags.items()), devices="sim:3")
    output = (suite.path / "out").read_text()
    stuck, *others = result.record.items
    assert [item.verdict for item in others] == ["passed"] * 6, output
    assert "not ended by SIGKILL" in stuck.attempts[0].reason
    lost = [attempt.device for attempt in stuck.attempts if attempt.outcome == "device-lost"]
    assert [quarantine.device for quarantine in result.record.quarantines] == lost
    if freeze == "once":
        assert (stuck.verdict, len(lost), result.status) == ("passed", 1, 0), output
    else:
        assert (stuck.verdict, len(lost), result.status) == ("device-lost", 2, 121), output
    assert "a process there did not end when it was killed" in output
    assert suite.wait_for(lambda: len(suite.survivors()) == len(lost)), "nothing else may be left"
