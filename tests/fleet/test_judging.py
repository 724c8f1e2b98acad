"""Retries, judging, poison, quarantine, hygiene, isolation: each made to happen, each with its opposite."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.warm_pytest

LEAK = """
state = []
def test_leaks(): state.append(1)
def test_victim(): assert not state
def test_always_bad(): assert 0
"""


def test_a_failure_that_needs_a_dirty_process_is_flaky_and_named(suite) -> None:
    suite.write(test_m=LEAK)
    result = suite.pytest()
    victim, bad = result.record.items[1], result.record.items[2]
    assert (victim.verdict, victim.flaky, len(victim.attempts)) == ("passed", True, 2)
    assert "state-leak suspect" in victim.why
    assert (bad.verdict, bad.flaky, len(bad.attempts)) == ("failed", False, 2)
    assert [a.warm for a in victim.attempts] == [True, False]
    assert "1 flaky" in result.output
    assert "FLAKY" not in result.output or "passed" in result.output
    assert result.status == 1


CLOSES_BADLY = """
import os, unittest
def tell(what):
    with open(os.environ["LOG"], "a") as log:
        print(what, file=log)
class Closes(unittest.TestCase):
    @classmethod
    def tearDownClass(cls):
        raise RuntimeError("cannot close")
    def test_first(self): pass
    def test_last(self): tell("last")
def test_other(): pass
"""

WAITS = """
import os, select
import pytest
def test_waits():
    while open(os.environ["LOG"]).read().count("last") < 2:
        select.select([], [], [], 0.01)
@pytest.mark.parametrize("n", range(12))
def test_more(n): pass
"""


def test_what_fails_when_it_is_closed_is_closed_in_the_second_attempt_too(suite) -> None:
    """The other worker still has items, so this one kept the class open for them: its failure looked like a leak."""
    suite.write(test_closes=CLOSES_BADLY, test_waits=WAITS)
    result = suite.pytest("--junitxml=x.xml", "--dist=loadfile", devices="cpu:2")
    last = result.record.items[1]
    assert (last.verdict, last.flaky, len(last.attempts)) == ("error", False, 2)
    assert "flaky" not in result.summary
    assert (suite.path / "x.xml").read_text().count('name="test_last"') == 1


@pytest.mark.parametrize("devices", ["cpu:1", "cpu:2"])
def test_a_suite_that_is_simply_red_is_not_run_twice_over(suite, devices) -> None:
    """A second attempt waits until a worker has nothing else to do: by then every failure had been promised one."""
    suite.write(test_m="import pytest\n@pytest.mark.parametrize('n', range(60))\ndef test_red(n): assert 0\n")
    result = suite.pytest(devices=devices)
    twice = [item for item in result.record.items if len(item.attempts) > 1]
    assert set(result.verdicts.values()) == {"failed"}
    assert "60 failed" in result.summary
    assert 20 <= len(twice) < 20 + 2 * 2, "those that had begun when the twentieth was confirmed"


def test_flaky_counts_as_the_user_says(suite) -> None:
    suite.write(test_m="state = []\ndef test_leaks(): state.append(1)\ndef test_victim(): assert not state\n")
    assert suite.pytest().status == 0
    strict = suite.pytest("--ondol-flaky=fail")
    assert strict.status == 1
    assert strict.verdicts["test_victim"] == "failed"
    assert "flaky" in strict.output


def test_isolation_really_isolates_and_still_fails_what_is_bad(suite) -> None:
    suite.write(test_m=LEAK)
    result = suite.pytest("--ondol-isolate=item")
    assert result.verdicts == {"test_leaks": "passed", "test_victim": "passed", "test_always_bad": "failed"}
    assert not any(item.flaky for item in result.record.items)
    assert len({item.attempts[-1].worker for item in result.record.items}) == 3


def test_one_item_may_ask_for_a_process_of_its_own(suite) -> None:
    suite.write(
        test_m="""
        import pytest, os
        pids = []
        def test_1(): pids.append(os.getpid())
        @pytest.mark.ondol(isolate=True)
        def test_alone(): assert not pids
        def test_3(): assert not pids
        """
    )
    result = suite.pytest("--ondol-judge=off")
    assert set(result.verdicts.values()) == {"passed"}


@pytest.mark.parametrize("mode", [["--ondol-start=fork"], ["--ondol-start=spawn"], ["--ondol-isolate=item"]])
def test_a_failing_test_really_fails_in_every_mode(suite, mode) -> None:
    """An isolation layer once passed everything for a year (vLLM #41415): this is the self-test."""
    suite.write(
        test_m="""
        import pytest
        def test_pass(): pass
        def test_fail(): assert 0
        def test_error(no_such_fixture): pass
        def test_skip(): pytest.skip("x")
        def test_crash():
            import os; os.abort()
        """
    )
    result = suite.pytest(*mode)
    expected = {"pass": "passed", "fail": "failed", "error": "error", "skip": "skipped", "crash": "crashed"}
    assert result.verdicts == {f"test_{name}": verdict for name, verdict in expected.items()}
    assert result.status == 1


def test_a_crash_is_tried_again_on_another_device_and_stays_visible(suite) -> None:
    suite.write(
        test_m="""
        import os
        def test_bad_card(device):
            if device.names == ("sim0",):
                os.abort()
        """
    )
    result = suite.pytest(devices="sim:2")
    item = result.record.items[0]
    assert (item.verdict, item.flaky) == ("passed", True)
    assert [(a.device, a.outcome) for a in item.attempts] == [("sim0", "crashed"), ("sim1", "passed")]
    assert result.status == 0
    assert "rerun" in result.output


def test_retries_are_by_cause(suite) -> None:
    suite.write(
        test_m="""
        import os, pytest, threading
        def test_crash(): os.abort()
        @pytest.mark.ondol(timeout=1)
        def test_hang(): threading.Event().wait()
        def test_cache(): raise PermissionError(13, "Permission denied", "/c/ABC/tmp.pid_1_1a82e68f")
        """
    )
    flags = ["--ondol-retries=2", "--ondol-grace=0.1", "--ondol-judge=off"]
    attempts = {i.nodeid.split("::")[1]: len(i.attempts) for i in suite.pytest(*flags).record.items}
    assert attempts == {"test_crash": 3, "test_hang": 1, "test_cache": 3}
    none = suite.pytest(*flags, "--ondol-retry-on=timeout").record.items
    assert [len(i.attempts) for i in none] == [1, 3, 1]


STICKY = """
    import pytest
    broken = []
    class Context:
        def launch(self, bad=False):
            if broken: raise RuntimeError("context is broken")
            if bad: broken.append(1)
    @pytest.fixture
    def context(): return Context()
    def pytest_ondol_device_fault(item):
        return "sticky error 700" if broken else None
"""
STICKY_TESTS = """
    import pytest
    @pytest.mark.parametrize("n", range(40))
    def test_kernel(context, n):
        context.launch(bad=n in (10, 25))
        context.launch()
"""


def test_one_bad_kernel_does_not_make_a_cascade(suite) -> None:
    """A device context that turns sticky: plain pytest fails everything after the first bad kernel."""
    suite.write(conftest=STICKY, test_k=STICKY_TESTS)
    plain = suite.plain()
    assert "30 failed" in plain.output
    for devices in ("sim:1", "sim:2"):
        record = suite.pytest(devices=devices).record
        assert record.counts() == {"passed": 38, "failed": 2}, devices
        assert not [item.nodeid for item in record.items if item.flaky], "the next item inherited the fault"


def test_poison_is_found_although_the_item_passed(suite) -> None:
    suite.write(
        conftest=STICKY,
        test_k="def test_quiet(context): context.launch(bad=True)\ndef test_next(context): context.launch()\n",
    )
    result = suite.pytest("--ondol-retries=0")
    assert result.verdicts == {"test_quiet": "error", "test_next": "passed"}
    assert "sticky error 700" in result.record.items[0].why


BAD_DEVICE = """
    import os, pytest, select
    def failures():
        return os.path.getsize(os.environ["LOG"])
    @pytest.mark.parametrize("n", range(5))
    def test_n(n, device):
        if device.names == ("sim0",):
            fd = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND)
            os.write(fd, b".")
            assert False, "this card is bad"
        while failures() < 4:
            select.select([], [], [], 0.01)
"""


def test_a_device_is_set_aside_on_evidence_and_everywhere_reported(suite) -> None:
    suite.write(test_a=BAD_DEVICE, test_b=BAD_DEVICE, test_c=BAD_DEVICE)
    flags = ["--ondol-retry-on=failed", "--ondol-retries=1"]
    result = suite.pytest(*flags, devices="sim:3")
    assert set(result.verdicts.values()) == {"passed"}
    (quarantine,) = result.record.quarantines
    assert quarantine.device == "sim0"
    assert len(quarantine.items) >= 3
    assert "quarantined: sim0" in result.output
    from ondol.report import run_json, run_junit, run_markdown

    assert "quarantine.sim0" in run_junit.render(result.record)
    assert json.loads(run_json.render(result.record))["quarantined"][0]["device"] == "sim0"
    assert "`sim0` was quarantined" in run_markdown.render(result.record)


def test_one_deterministic_failure_burns_no_device(suite) -> None:
    suite.write(test_a="import os\ndef test_bad(): os.abort()\ndef test_ok(): pass\n")
    result = suite.pytest("--ondol-retries=3", devices="sim:3")
    assert not result.record.quarantines
    assert len(result.record.items[0].attempts) == 4


def test_a_failed_probe_sets_the_device_aside_and_its_items_move(suite) -> None:
    suite.write(
        test_a="""
        import os, pytest
        @pytest.mark.parametrize("n", range(6))
        def test_n(n, device):
            if device.names == ("sim0",): os.abort()
        """
    )
    probe = "sh -c 'test $ONDOL_DEVICE != sim0 || { echo melted; exit 1; }'"
    result = suite.pytest(f"--ondol-probe={probe}", devices="sim:2")
    assert [q.device for q in result.record.quarantines] == ["sim0"]
    assert "melted" in result.record.quarantines[0].why
    assert set(result.verdicts.values()) == {"passed"}


def test_an_idle_worker_of_a_device_that_is_set_aside_does_not_spoil_its_last_item(suite) -> None:
    """The probe answers late: by then a new worker has run an item on the device, and waits."""
    suite.write(
        test_a="""
        import os, pathlib, time, pytest
        HERE = pathlib.Path(__file__).parent
        def is_journalled(text):
            return any(text in journal.read_text() for journal in HERE.glob("journal*"))
        @pytest.mark.parametrize("n", range(3))
        def test_n(n, device):
            if device.names == ("sim0",):
                (HERE / "crashed").exists() or ((HERE / "crashed").touch(), os.abort())
            deadline = time.monotonic() + 60
            while device.names == ("sim1",) and not is_journalled('"quarantine"') and time.monotonic() < deadline:
                time.sleep(0.01)
        """
    )
    (suite.path / "probe.sh").write_text(
        "test $ONDOL_DEVICE = sim0 || exit 0\n"
        f"until grep -q 'outcome.: .passed' {suite.path}/journal*; do sleep 0.01; done\n"
        "echo melted; exit 1\n"
    )
    result = suite.pytest(f"--ondol-probe=sh {suite.path}/probe.sh", devices="sim:2")
    assert [q.device for q in result.record.quarantines] == ["sim0"], result.output
    assert set(result.verdicts.values()) == {"passed"}, result.output
    assert "finaliser" not in result.output


def test_a_probe_that_hangs_is_an_answer(suite) -> None:
    suite.write(test_a="import os\ndef test_1(): os.abort()\ndef test_2(): pass\n")
    result = suite.pytest("--ondol-probe=sleep 600", "--ondol-probe-timeout=1", "--ondol-retries=0", devices="sim:1")
    assert [q.device for q in result.record.quarantines] in ([], ["sim0"])
    assert result.verdicts["test_1"] == "crashed"
    assert suite.all_gone()


def test_when_no_device_is_left_the_run_ends_and_says_so(suite) -> None:
    suite.write(
        test_a="""
        import os, pytest
        @pytest.mark.parametrize("n", range(5))
        def test_n(n): os.abort()
        """
    )
    result = suite.pytest("--ondol-probe=false", devices="sim:1")
    counts = result.record.counts()
    assert counts["device-lost"] >= 1
    assert sum(counts.values()) == 5
    assert "device-lost" in result.output


def test_only_lost_items_make_the_status_incomplete(suite) -> None:
    """Workers that cannot start: nothing failed, nothing is known."""
    suite.write(
        conftest="import os\ndef pytest_configure(config):\n    os.register_at_fork(after_in_child=lambda: os._exit(5) if os.environ.get('GO') else None)\ndef pytest_collection_finish(session):\n    os.environ['GO'] = ''\n",
        test_a="def test_1(): pass\n",
    )
    result = suite.pytest("--ondol-start=spawn", "--ondol-startup-timeout=0.01", "--ondol-grace=0.1", devices="sim:1")
    assert result.record.counts() == {"device-lost": 1}
    assert result.status == 121
    assert "no worker could start here" in result.record.quarantines[0].why


HYGIENE = """
import os, signal, sys, threading, subprocess, tempfile, ctypes, pytest
keep = []
def test_clean(): pass
def test_descriptor(): keep.append(open(__file__))
def test_thread(): threading.Thread(target=threading.Event().wait, name="left-over", daemon=True).start()
def test_child(): keep.append(subprocess.Popen(["sleep", "600"]))
def test_environment(): os.environ["LEFT"] = "1"
def test_cwd(): os.chdir("/")
def test_path(): sys.path.append("/nowhere")
def test_handler(): signal.signal(signal.SIGUSR2, lambda *a: None)
def test_memory(): keep.append(bytearray(600 << 20))
def test_tmpdir():
    import shutil; shutil.rmtree(os.environ["TMPDIR"])
def test_after(): assert os.getcwd() != "/"
"""
KINDS = {
    "test_descriptor": "descriptor",
    "test_thread": "thread",
    "test_child": "child",
    "test_environment": "environment",
    "test_cwd": "cwd",
    "test_path": "sys.path",
    "test_handler": "signal handler",
    "test_memory": "memory",
    "test_tmpdir": "tmpdir",
}


def dirt_of(result) -> dict[str, list[str]]:
    found = {}
    for item in result.record.items:
        kinds = [kind for attempt in item.attempts for kind, _ in attempt.dirt]
        if kinds:
            found[item.nodeid.split("::")[1]] = kinds
    return found


def test_every_kind_of_dirt_is_named_against_the_item_that_made_it(suite) -> None:
    suite.write(test_h=HYGIENE)
    result = suite.pytest()
    assert dirt_of(result) == {name: [kind] for name, kind in KINDS.items()}
    assert set(result.verdicts.values()) == {"passed"}
    assert "left behind: test_h.py::test_child (child: pid" in result.output
    assert suite.all_gone()


def test_dirt_can_recycle_the_worker_or_fail_the_item(suite) -> None:
    suite.write(
        test_h="import os\ndef test_1(): os.environ['LEFT'] = '1'\ndef test_2(): assert 'LEFT' not in os.environ\n"
    )
    recycled = suite.pytest("--ondol-hygiene=recycle", "--ondol-judge=off")
    assert set(recycled.verdicts.values()) == {"passed"}
    assert len({i.attempts[0].worker for i in recycled.record.items}) == 2
    failed = suite.pytest("--ondol-hygiene=fail", "--ondol-judge=off")
    assert failed.verdicts["test_1"] == "error"
    assert "left dirt behind (environment: LEFT)" in failed.output
    off = suite.pytest("--ondol-hygiene=off", "--ondol-judge=off")
    assert off.verdicts == {"test_1": "passed", "test_2": "failed"}
    assert not dirt_of(off)


def test_what_a_wider_fixture_keeps_is_not_dirt(suite) -> None:
    suite.write(
        test_h="""
        import pytest, os, threading
        @pytest.fixture(scope="module")
        def server():
            stop = threading.Event()
            thread = threading.Thread(target=stop.wait); thread.start()
            os.environ["SERVER"] = "1"
            yield
            stop.set(); thread.join(); del os.environ["SERVER"]
        def test_1(server): pass
        def test_2(server): pass
        """
    )
    assert dirt_of(suite.pytest()) == {}


def test_a_worker_is_replaced_after_so_many_items(suite) -> None:
    suite.write(test_h="import pytest\n@pytest.mark.parametrize('n', range(9))\ndef test_n(n): pass\n")
    result = suite.pytest("--ondol-recycle-after=3")
    assert len({i.attempts[0].worker for i in result.record.items}) == 3
