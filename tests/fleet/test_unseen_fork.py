"""A worker that shows its tests that it is one: what passes in plain pytest must not fail because it was forked."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable

import pytest

from ondol.host import killing, proctree
from suites import Result, Suite

ONCE = ["--ondol-judge=off", "--ondol-retries=0"]
STARTS = ["--ondol-start=fork", "--ondol-start=spawn"]
#: Not what is about the garbage collector: a warm process has frozen what it imported.
warm = pytest.mark.warm_pytest

# ---------------------------------------------------------------------- where temporary files go

SOCKETS = """
    import multiprocessing, os, tempfile
    def test_short(): assert len(os.environ["TMPDIR"]) < 40 and tempfile.gettempdir() == os.environ["TMPDIR"]
    def test_manager():
        with multiprocessing.Manager() as manager: assert manager.list([1])[0] == 1
    def test_forkserver():
        process = multiprocessing.get_context("forkserver").Process(target=print)
        process.start()
        process.join()
        assert process.exitcode == 0
    def test_private():
        about = os.stat(os.environ["TMPDIR"])
        assert (about.st_uid, about.st_mode & 0o777) == (os.geteuid(), 0o700)
        with open(os.environ["LOG"], "a") as log: log.write(os.environ["TMPDIR"] + "\\n")
"""


@pytest.mark.parametrize("start", STARTS)
@warm
def test_sockets_fit_below_the_tmpdir_of_a_worker(suite, start) -> None:
    suite.write(test_s=SOCKETS)
    ours = suite.pytest(*ONCE, start)
    assert "4 passed" in ours.summary, ours.output
    assert not os.path.exists(ours.log[0]), "left behind"


@warm
def test_sockets_fit_below_the_tmpdir_of_a_worker_in_a_room(suite) -> None:
    """A room and a run directory, each with a long random name, left no space for the name of a socket."""
    suite.write(test_s=SOCKETS, test_t=SOCKETS)
    suite.variables |= {
        "ONDOL_STORE": str(suite.path / "store"),
        "TMPDIR": "/tmp",
        "RUNNER_TEMP": "",
        "SLURM_TMPDIR": "",
    }
    ours = suite.ondol("--judge=off", "--retries=0", "--isolate=item")
    assert "8 passed" in ours.summary, ours.output
    assert len(set(ours.log)) == 2, "two workers, one TMPDIR"
    assert not any(map(os.path.exists, ours.log))


@warm
def test_sockets_fit_where_the_room_lies_deep(suite) -> None:
    """A CI system's own directory may have a hundred characters."""
    deep = suite.path / ("d" * 60)
    deep.mkdir()
    suite.write(test_s=SOCKETS)
    suite.variables |= {"ONDOL_STORE": str(suite.path / "store"), "ONDOL_ROOM_DIR": str(deep)}
    ours = suite.ondol("--judge=off", "--retries=0")
    assert "4 passed" in ours.summary, ours.output
    assert not any(map(os.path.exists, ours.log))


def test_a_program_in_a_room_makes_sockets_in_its_tmpdir() -> None:
    program = """
import multiprocessing, os, tempfile
tmp = os.environ["TMPDIR"]
with multiprocessing.Manager() as manager: assert manager.list([1])[0] == 1
print(len(tmp), oct(os.stat(os.path.dirname(tmp)).st_mode))
"""
    env = {**os.environ, "TMPDIR": "/tmp", "RUNNER_TEMP": "", "SLURM_TMPDIR": ""}
    command = [sys.executable, "-m", "ondol", "run", "--store", "none", "-q", "--", sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    length, mode = done.stdout.split()
    assert int(length) < 40
    assert stat.S_IMODE(int(mode, 8)) == 0o700


# ---------------------------------------------------------------------- streams that were saved at import

SAVED = """
    import logging, sys
    OUT, ERR = sys.stdout, sys.stderr
    logger = logging.getLogger("mine")
    logger.addHandler(logging.StreamHandler())
    logger.propagate = False
    def test_a(capfd):
        print("first to saved stdout", file=OUT)
        logger.warning("first to the saved handler")
    def test_b():
        print("second to saved stdout", file=OUT)
        print("second to saved stderr", file=ERR)
        logger.warning("second to the saved handler")
        assert 0, "so that what it printed is shown"
"""


@pytest.mark.parametrize("flags", [["--capture=sys"], ["-s"]])
@warm
def test_streams_that_were_saved_at_import_work_however_output_is_captured(suite, flags) -> None:
    suite.write(test_s=SAVED)
    plain, ours = suite.plain(*flags), suite.pytest(*ONCE, *flags)
    assert ours.outcomes == plain.outcomes, ours.output
    assert "-s" in flags or captured(ours.output) == captured(plain.output)
    assert "to saved stdout" in ours.output


def captured(output: str) -> str:
    return "".join(re.findall(r"^-+ Captured .*?(?=^(?:=|-+ ondol))", output, re.M | re.S))


@pytest.mark.fault
@warm
def test_what_a_crash_had_printed_to_a_saved_stream_is_shown(suite) -> None:
    suite.write(
        test_s="import os, sys\nOUT = sys.stdout\ndef test_a(): pass\ndef test_b():\n    print('last words', file=OUT)\n    os.abort()\n"
    )
    for flags in ([], ["--ondol-isolate=item"]):
        ours = suite.pytest(*ONCE, *flags, devices="cpu:2")
        assert re.search(r"Captured stdout[^\n]*\nlast words", ours.output), ours.output


# ---------------------------------------------------------------------- warnings at collection

WARNS = """
    import os, pytest, warnings
    warnings.warn("said at import")
    @pytest.mark.nobody_knows
    def test_a(): warnings.warn("said in a test")
    def test_b():
        print("printed before the crash", flush=True)
        if os.environ.get("CRASH"): os.abort()
"""


@pytest.mark.fault
@pytest.mark.parametrize("start", STARTS)
@warm
def test_a_warning_at_collection_does_not_cost_what_a_crash_printed(suite, start) -> None:
    """It went out first, and its first byte was taken for the message that carries the capture files."""
    suite.variables["CRASH"] = "1"
    suite.write(test_w=WARNS)
    ours = suite.pytest(*ONCE, start)
    assert ours.verdicts == {"test_a": "passed", "test_b": "crashed"}
    assert re.search(r"Captured stdout[^\n]*\nprinted before the crash", ours.output), ours.output
    assert "left behind" not in ours.output


# ---------------------------------------------------------------------- the garbage collector

GARBAGE = """
    import gc, os, subprocess, sys, weakref
    class Node: pass
    def cycle():
        node = Node()
        node.self = node
        return weakref.ref(node)
    MADE, HELD = cycle(), Node()
    HELD.list = [HELD]
    def test_objects(): assert any(o is HELD for o in gc.get_objects())
    def test_referrers(): assert HELD.list in gc.get_referrers(HELD)
    def test_freeze():  # a new Python 3.12 has hundreds of them
        new = [sys.executable, "-c", "import gc; print(gc.get_freeze_count())"]
        assert gc.get_freeze_count() <= int(subprocess.check_output(new))
    def test_enabled(): assert gc.isenabled() == ("NO_GC" not in os.environ)
    def test_cycles_of_the_import_are_found():
        gc.collect()
        assert MADE() is None
"""


# What each kind of worker shows of its streams, of warnings and of the garbage collector, in one run of each kind.

WAYS = {"fork": [], "isolated": ["--ondol-isolate=item"], "spawn": ["--ondol-start=spawn"]}


@pytest.fixture(scope="module")
def shown(new_suite: Callable[[], Suite]) -> tuple[Suite, Result]:
    """The suite, and what plain pytest says."""
    another = "import warnings\nwarnings.warn('another')\ndef test_c(): pass\n"
    suite = new_suite().write(test_s=SAVED, test_w=WARNS, test_v=another, test_g=GARBAGE)
    return suite, suite.plain()


@pytest.fixture(scope="module", params=WAYS)
def seen(shown: tuple[Suite, Result], request: pytest.FixtureRequest) -> tuple[Result, Result]:
    suite, plain = shown
    return plain, suite.pytest(*ONCE, *WAYS[request.param], devices="cpu:2")


def test_streams_that_were_saved_at_import_work_and_belong_to_their_test(seen) -> None:
    """A worker that makes new capture files closes those that modules hold."""
    plain, ours = seen
    assert ours.outcomes == plain.outcomes, ours.output
    assert captured(ours.output) == captured(plain.output)
    assert "second to saved stderr" in captured(ours.output)
    assert "to saved stdout" in ours.output


def test_warnings_at_collection_are_reported_once(seen) -> None:
    """Each worker heard of them again as soon as it began to listen."""
    plain, ours = seen
    assert ours.summary == plain.summary == "1 failed, 9 passed, 4 warnings", ours.output
    assert ours.output.count("said at import") == plain.output.count("said at import")


def test_the_garbage_collector_looks_as_in_plain_pytest(seen) -> None:
    _, ours = seen
    verdicts = [item.verdict for item in ours.record.items if item.nodeid.startswith("test_g.py")]
    assert verdicts == ["passed"] * 5, ours.output


LEAVES_WITH_THE_PROCESS = """
import os, sys, types
extension = sys.modules["extension"] = types.ModuleType("extension")
extension.__file__ = "extension.so"
extension.Kernel = type("nb_type_0", (type,), {"__module__": "nanobind"})("Kernel", (), {})
class Held:
    def __init__(self):
        self.me, self.log, self.pid = self, os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND), os.getpid()
    def __del__(self, write=os.write, getpid=os.getpid):
        if self.pid == getpid():
            write(self.log, b"gone\\n")
HELD = Held()
"""


def test_what_the_modules_hold_goes_with_the_process(suite) -> None:
    """Extensions made with nanobind (Triton, JAX) look for what is left at the very end, and print pages about it."""
    suite.write(conftest=LEAVES_WITH_THE_PROCESS, test_m="def test_m(): pass\n")
    assert suite.plain().log == suite.pytest().log == ["gone"]


def test_nobody_collects_what_the_import_left_before_the_tests_do(suite) -> None:
    """Whether a cycle still lives is what a test of a cache or of a leak is about."""
    suite.write(test_g=GARBAGE + "    def test_first(): assert MADE() is None\n", conftest="import gc\ngc.disable()\n")
    suite.variables["NO_GC"] = "1"
    suite.write(test_f="from test_g import MADE\ndef test_lives(): assert MADE() is not None\n")
    ours = suite.pytest(*ONCE, "test_f.py", "test_g.py")
    assert "7 passed" in ours.summary, ours.output


# ---------------------------------------------------------------------- shared memory

LEAKS = """
    import multiprocessing, os, signal
    from multiprocessing import shared_memory
    import pytest
    def leak():
        memory = shared_memory.SharedMemory(create=True, size=16)
        lock = multiprocessing.get_context("spawn").Lock()
        with open(os.environ["LOG"], "a") as log:
            print(memory.name.strip("/"), "sem." + lock._semlock.name.strip("/"), sep="\\n", file=log)
        return memory, lock
    def test_forgets(): globals()["kept"] = leak()
    def test_crashes():
        kept = leak()
        os.abort()
    @pytest.mark.timeout(3)
    def test_hangs():
        kept = leak()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: signal.pause()
"""


def test_a_tracker_that_has_just_been_started_is_not_taken_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no command line yet. `cat` stands for it: killed, it could not end by itself."""
    told = iter(["", "", "python -c from multiprocessing.resource_tracker import main;main(7)"])
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as tracker:

        def command(pid: int) -> str:
            found = next(told)
            if found and tracker.stdin:
                tracker.stdin.close()  # what it looks after has ended
            return found

        monkeypatch.setattr(proctree, "command", command)
        killing.kill_all([tracker.pid], os.getpid())
        assert tracker.wait() == 0


@pytest.mark.plugins("timeout")
@pytest.mark.fault
@pytest.mark.parametrize("flags", [[], ["--ondol-isolate=item"], ["--ondol-start=spawn"]])
@warm
def test_shared_memory_that_a_test_leaves_goes_with_its_worker(suite, flags) -> None:
    """Python's resource tracker unlinks it when its process has ended, unless somebody kills the tracker first."""
    suite.write(test_l=LEAKS)
    ours = suite.pytest(*ONCE, "-p", "no:timeout", "--ondol-grace=0.2", *flags)
    assert ours.verdicts == {"test_forgets": "passed", "test_crashes": "crashed", "test_hangs": "timeout"}, ours.output
    assert len(ours.log) == 6
    assert not [name for name in ours.log if os.path.exists(f"/dev/shm/{name}")]
    assert suite.all_gone()


@pytest.mark.plugins("timeout")
@pytest.mark.fault
def test_a_tracker_that_a_busy_machine_holds_up_is_waited_for(suite) -> None:
    """It is an interpreter of its own, which has hardly begun when a worker dies of the item that made it start."""
    slow = "import sys, time\nif any('resource_tracker import main' in word for word in sys.orig_argv): time.sleep(2)\n"
    suite.write(sitecustomize=slow)
    test_shared_memory_that_a_test_leaves_goes_with_its_worker(suite, [])
