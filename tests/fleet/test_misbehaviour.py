"""Everything a test can do to its runner: in one worker after another, and on two of them at once, beside healthy items.

Whatever hangs waits for something that never comes; only the items that are named loops burn a core.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

#: Name → what its verdict must be, and what the item does. `spin` and friends are native code.
MATRIX: dict[str, tuple[str, str]] = {
    "sigsegv": ("crashed", "os.kill(os.getpid(), signal.SIGSEGV)"),
    "null_pointer": ("crashed", "ctypes.string_at(0)"),
    "abort": ("crashed", "os.abort()"),
    "exit_0": ("crashed", "os._exit(0)"),
    "sys_exit": ("failed", "sys.exit(0)"),
    "stack_overflow": ("crashed", "native(ctypes.CDLL).overflow(0)"),
    "oom_kill": ("crashed", "os.kill(os.getpid(), signal.SIGKILL)"),
    "loop_in_python": ("timeout", "while True: pass"),
    "loop_with_the_gil": ("timeout", "native(ctypes.PyDLL).spin()"),
    "loop_without_the_gil": ("timeout", "native(ctypes.CDLL).spin()"),
    "ignores_sigterm": ("timeout", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    wait()"),
    "grandchild_outlives": ("passed", "grandchild()"),
    "grandchild_and_crash": ("crashed", "grandchild(); os._exit(3)"),
    "grandchild_and_hang": ("timeout", "grandchild()\n    wait()"),
    "fork_bomb": ("timeout", "fork_bomb()\n    wait()"),
    "child_comes_back": ("passed", "os.fork()"),
    "closes_all": ("crashed", "os.closerange(3, 4096)"),
    "closes_standard": ("passed", "os.close(0)"),
    "binary_on_stdout": ("passed", "os.write(1, bytes(range(256)) * 40)"),
    "binary_everywhere": ("passed", "scribble()"),
    "prints_100_mb": ("passed", "sys.stdout.write('x' * (100 << 20))"),
    "deleted_cwd": ("passed", "d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)"),
    "deletes_tmpdir": ("passed", "shutil.rmtree(os.environ['TMPDIR'])"),
    "leaves_thread": ("passed", "threading.Thread(target=wait).start()"),
    "changes_environ": ("passed", "os.environ.clear()"),
    "crash_at_exit": ("passed", "atexit.register(os.abort)"),
    "crash_in_setup": ("crashed", None),  # type: ignore[dict-item]
    "crash_in_teardown": ("crashed", None),  # type: ignore[dict-item]
}

PRELUDE = """
import atexit, ctypes, os, shutil, signal, sys, tempfile, threading
import pytest

def wait():
    threading.Event().wait()

def native(how):
    return how(os.environ["TROUBLE"])

def grandchild():
    "A process in a session of its own that holds every descriptor of ours open."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
    os.wait()

def fork_bomb():
    top = os.getpid()
    for _ in range(4):
        os.fork()
    if os.getpid() != top:
        os.setsid()
        signal.pause()

def scribble():
    for name in os.listdir("/proc/self/fd"):
        try:
            os.write(int(name), b"\\0\\xff\\n{garbage" * 20)
        except OSError:
            pass

@pytest.fixture
def crash_in_setup():
    os._exit(0)

@pytest.fixture
def crash_in_teardown():
    yield
    os._exit(0)
"""

HEALTHY = """
@pytest.mark.parametrize("n", range({count}))
def test_healthy{where}(n, tmp_path):
    print("fine")
    (tmp_path / "file").write_text("x")
    with tempfile.TemporaryDirectory() as directory:
        assert directory.startswith(os.environ["TMPDIR"])
    assert os.getcwd()
"""


@pytest.fixture(scope="session")
def trouble(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The misbehaving library, built here."""
    target = tmp_path_factory.mktemp("native") / "libtrouble.so"
    source = Path(__file__).parents[1] / "children" / "trouble.c"
    subprocess.run(["gcc", "-O0", "-shared", "-fPIC", "-o", target, source], check=True)
    return target


def item(name: str) -> str:
    """What hangs has timed out after half a second, wherever it is by then."""
    verdict, body = MATRIX[name]
    arguments = "" if body else name
    limit = 0.5 if verdict == "timeout" else 200
    return f"\n@pytest.mark.ondol(timeout={limit})\ndef test_{name}({arguments}):\n    {body or 'pass'}\n"


def healthy(where: str) -> str:
    return HEALTHY.format(count=1, where=where)


@pytest.fixture(scope="module")
def one_after_another(new_suite: Callable[[], Suite], trouble: Path) -> dict[bool, tuple[Result, bool]]:
    """Whether all of it may pass → the run, on one worker and what replaces it; and whether nobody outlived it."""
    runs = {}
    for passes in (True, False):
        names = [name for name, (verdict, _) in MATRIX.items() if (verdict == "passed") is passes]
        suite = new_suite()
        suite.variables["TROUBLE"] = str(trouble)
        suite.write(test_m=PRELUDE + healthy("") + "".join(item(name) + healthy(f"_after_{name}") for name in names))
        flags = ["--ondol-retries=0", "--ondol-grace=0.3", "--ondol-teardown-timeout=60"]
        runs[passes] = suite.pytest(*flags, devices="cpu:1"), suite.all_gone()
    return runs


@pytest.mark.fault
@pytest.mark.parametrize("name", MATRIX)
def test_one_misbehaving_item_costs_its_own_verdict_only(one_after_another, name) -> None:
    result, all_gone = one_after_another[MATRIX[name][0] == "passed"]
    assert result.verdicts[f"test_{name}"] == MATRIX[name][0], result.output[-3000:]
    assert result.verdicts[f"test_healthy_after_{name}[0]"] == "passed", result.output[-3000:]
    assert all_gone


@pytest.mark.fault
@pytest.mark.parametrize("passes", [True, False])
def test_healthy_items_pass_and_the_status_tells_whether_all_did(one_after_another, passes) -> None:
    result, _ = one_after_another[passes]
    before_and_after = [verdict for name, verdict in result.verdicts.items() if "healthy" in name]
    assert set(before_and_after) == {"passed"}
    assert 2 * len(before_and_after) == len(result.verdicts) + 1
    assert result.status == (0 if passes else 1)
    assert "the agent died" not in result.output


@pytest.mark.fault
def test_what_a_dead_worker_left_is_ended_before_the_next_item_runs(suite) -> None:
    suite.write(
        test_m=PRELUDE
        + """
def test_crash():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open("left", "w") as file:
                file.write(str(os.getpid()))
            signal.pause()
        os._exit(0)
    os.wait()
    while not os.path.exists("left") or not os.path.getsize("left"):
        pass
    os._exit(1)

def test_after():
    try:
        state = open(f"/proc/{open('left').read()}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        state = "gone"
    assert state in ("gone", "Z", "X")
"""
    )
    result = suite.pytest("--ondol-retries=0")
    assert result.verdicts == {"test_crash": "crashed", "test_after": "passed"}, result.output


@pytest.mark.fault
def test_all_of_it_in_one_suite(suite, trouble, monkeypatch) -> None:
    monkeypatch.setenv("TROUBLE", str(trouble))
    body = "".join(item(name) + healthy(f"_after_{name}") for name in MATRIX)
    suite.write(
        test_m=PRELUDE + body,
        test_crash_on_import="import os\nos.abort()\n",
        test_hang_on_import="import threading\nthreading.Event().wait()\n",
    )
    flags = ["--grace=0.3", "--teardown-timeout=60", "--collect-timeout=15", "--continue-on-collection-errors"]
    result = suite.ondol(*flags, devices="cpu:2")
    for name, (verdict, _) in MATRIX.items():
        assert result.verdicts[f"test_{name}"] == verdict, (name, result.output[-5000:])
        assert result.verdicts[f"test_healthy_after_{name}[0]"] == "passed", name
    assert sum(result.record.counts().values()) == len(result.record.items) == 2 * len(MATRIX)
    assert {fatal.file for fatal in result.record.fatal} == {"test_crash_on_import.py", "test_hang_on_import.py"}
    assert result.status == 1
    assert suite.all_gone()


@pytest.fixture(scope="module")
def three_ends(new_suite: Callable[[], Suite]) -> Result:
    """A crash, a hang, and a hang in a child."""
    suite = new_suite().write(
        test_m="""
        import os, sys, threading, pytest
        def test_crash():
            print("printed before")
            os.write(2, b"raw before")
            os.abort()
        @pytest.mark.ondol(timeout=5)
        def test_hang():
            print("printed before the hang")
            def deep_inside():
                threading.Event().wait()
            deep_inside()
        @pytest.mark.ondol(timeout=5)
        def test_hang_in_a_child():
            def in_the_child():
                threading.Event().wait()
            if os.fork() == 0:
                os.setsid()
                in_the_child()
            os.wait()
        """
    )
    return suite.pytest("--ondol-retries=0", "--ondol-grace=0.2")


@pytest.mark.fault
def test_output_and_stacks_until_the_end_are_in_the_report(three_ends) -> None:
    crash, hang, _ = (item.attempts[-1] for item in three_ends.record.items)
    assert crash.output == {"stdout": "printed before\n", "stderr": "raw before"}
    assert "SIGABRT" in crash.reason
    assert "test_crash" in crash.dump
    assert "printed before the hang" in hang.output["stdout"]
    assert "deep_inside" in hang.dump
    assert "longer than 5 s" in hang.reason
    for text in ("printed before", "raw before", "deep_inside"):
        assert text in three_ends.output


@pytest.mark.fault
def test_stacks_of_a_child_that_hangs_are_shown_too(three_ends) -> None:
    dump = three_ends.record.items[2].attempts[-1].dump
    assert "in_the_child" in dump
    assert "os.wait" in dump or "test_hang" in dump


@pytest.mark.fault
def test_native_stacks_are_shown_where_a_debugger_is_installed(suite, trouble, monkeypatch) -> None:
    from ondol.host.killing import native_dump_command

    if native_dump_command(1) is None:
        pytest.skip("neither py-spy nor gdb is installed")
    monkeypatch.setenv("TROUBLE", str(trouble))
    suite.write(test_m=PRELUDE + "@pytest.mark.ondol(timeout=5)\ndef test_hang(): native(ctypes.CDLL).wait_in_c()\n")
    dump = suite.pytest("--ondol-native-stacks=20").record.items[0].attempts[-1].dump
    assert "wait_in_c" in dump


@pytest.mark.fault
def test_silence_ends_an_item_and_output_keeps_it_alive(suite) -> None:
    suite.write(
        test_m="""
        import threading
        def test_talks():
            for n in range(24):
                print(n, flush=True)
                threading.Event().wait(0.25)
        def test_silent():
            threading.Event().wait()
        """
    )
    result = suite.pytest("--ondol-silence=4", "--ondol-grace=0.2")
    assert result.verdicts == {"test_talks": "passed", "test_silent": "timeout"}
    assert "neither output nor progress" in result.record.items[1].why


@pytest.mark.fault
def test_a_teardown_that_hangs_has_a_deadline_of_its_own(suite) -> None:
    suite.write(
        test_m="""
        import threading, pytest
        @pytest.fixture
        def stuck():
            yield
            threading.Event().wait()
        def test_stuck(stuck): pass
        def test_fine(): pass
        """
    )
    result = suite.pytest("--ondol-teardown-timeout=5", "--ondol-grace=0.2")
    assert result.verdicts == {"test_stuck": "timeout", "test_fine": "passed"}
    assert "teardown took longer" in result.record.items[0].why


@pytest.mark.fault
def test_a_session_finaliser_that_crashes_is_counted_against_its_last_item(suite) -> None:
    suite.write(
        conftest="import os, pytest\n@pytest.fixture(scope='session', autouse=True)\ndef s():\n    yield\n    os.abort()\n",
        test_a="def test_1(): pass\ndef test_2(): pass\n",
        test_b="def test_3(): pass\ndef test_4(): pass\n",
    )
    result = suite.pytest("--ondol-retries=0", devices="cpu:2")
    assert result.status == 1
    assert "crashed" in result.verdicts.values()
    assert len(result.verdicts) == 4


@pytest.mark.fault
def test_the_run_has_a_deadline_and_says_what_was_not_run(suite) -> None:
    suite.write(
        test_m="import threading\ndef test_1(): pass\ndef test_2(): threading.Event().wait()\ndef test_3(): pass\n"
    )
    result = suite.pytest("--ondol-session-timeout=10", "--ondol-grace=0.2")
    assert result.verdicts == {"test_1": "passed", "test_2": "timeout", "test_3": "not-run"}
    assert result.status == 124
    assert suite.all_gone()
