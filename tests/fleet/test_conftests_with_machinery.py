"""Conftests that run tests in a way of their own, print as tests go by, or share out devices among xdist's workers."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.warm_pytest

ONCE = ["--ondol-judge=off", "--ondol-retries=0"]

LOOPS = """
    import os, pytest
    class Loop:
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session):
            for item in session.items:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            return True
    def pytest_configure(config): config.pluginmanager.register(Loop())
"""


def test_a_loop_that_would_run_the_tests_in_the_controller_is_refused(suite) -> None:
    """They ran there, on the devices that it must not touch, and nothing said so (quack's `--async-compile`)."""
    suite.write(conftest=LOOPS, test_a="import os\ndef test_1(): open(os.environ['LOG'], 'a').write('ran\\n')\n")
    ours = suite.ondol()
    assert ours.status == 4, ours.output
    assert "conftest.Loop has a pytest_runtestloop of its own" in ours.output
    assert ours.log == []
    assert suite.ondol("--collect-only", "-q").status == 0


PRINTS = """
    def pytest_runtest_logstart(nodeid): print(f"BEGINS {nodeid}")
    def pytest_runtest_logreport(report): print(f"REPORT {report.nodeid} {report.when}")
    def pytest_runtest_logfinish(nodeid): print(f"ENDS {nodeid}")
"""


@pytest.mark.parametrize("flags", [[], ["-s"], ["--ondol-start=spawn"]])
def test_what_a_conftest_prints_of_each_test_is_there_once(suite, flags) -> None:
    """transformers and sglang print a line for every test: each came from the worker, too, and mixed with the others."""
    suite.write(conftest=PRINTS, test_a="def test_1(): pass\ndef test_2(): pass\n")
    ours = suite.pytest(*ONCE, *flags, devices="cpu:2")
    for word, times in {"BEGINS": 2, "REPORT": 6, "ENDS": 2}.items():
        assert ours.output.count(word) == times, ours.output


REPORTS = """
    class Report:
        def __init__(self): self.file = open("own.txt", "w")
        def pytest_runtest_logreport(self, report):
            print(report.nodeid, report.when, file=self.file, flush=True)
        def pytest_sessionfinish(self): print("end", file=self.file, flush=True)
    def pytest_configure(config):
        if not hasattr(config, "workerinput"): config.pluginmanager.register(Report())
"""


@pytest.mark.parametrize("flags", [[], ["--ondol-isolate=item"], ["--ondol-start=spawn"]])
def test_a_report_that_a_conftest_writes_is_written_by_the_controller_alone(suite, flags) -> None:
    """PyTorch's, of reruns. Every forked worker had it open, too, and wrote to it what it heard."""
    suite.write(conftest=REPORTS, test_a="def test_1(): pass\ndef test_2(): pass\n")
    suite.plain()
    plain = (suite.path / "own.txt").read_text().splitlines()
    suite.pytest(*ONCE, *flags, devices="cpu:2")
    ours = (suite.path / "own.txt").read_text().splitlines()
    assert sorted(ours) == sorted(plain)
    assert ours[-1] == "end"


def test_a_listener_that_hands_over_what_it_heard_does_so(suite) -> None:
    suite.write(
        conftest="""
            import os
            class Counts:
                heard = 0
                def pytest_runtest_logreport(self, report): self.heard += 1
                def pytest_sessionfinish(self, session):
                    if hasattr(session.config, "workeroutput"): session.config.workeroutput["heard"] = self.heard
                def pytest_testnodedown(self, node):
                    with open(os.environ["LOG"], "a") as log: log.write(f"{node.workeroutput['heard']}\\n")
            def pytest_configure(config): config.pluginmanager.register(Counts())
        """,
        test_a="def test_1(): pass\n",
    )
    suite.plugins.append("xdist")
    assert suite.pytest(*ONCE).log == ["3"]


TELLS = """
    def pytest_collection_modifyitems(config, items):
        config.pluginmanager.get_plugin("terminalreporter").write_line("BY THE REPORTER")
        config.get_terminal_writer().line("BY THE WRITER")
"""


def test_what_a_conftest_says_of_the_collection_is_there_once(suite) -> None:
    """Lightning and quack count what was collected: each spawned worker, which collects for itself, said so again."""
    suite.write(conftest=TELLS, test_a="def test_1(): pass\n", test_b="def test_2(): pass\n")
    ours = suite.pytest(*ONCE, "--ondol-start=spawn", devices="cpu:2")
    for word in ("BY THE REPORTER", "BY THE WRITER"):
        assert ours.output.count(word) == 1, ours.output


@pytest.mark.parametrize("flags", [[], ["--ondol-start=spawn"]])
def test_a_run_without_a_terminal_reporter_has_its_verdicts(suite, flags) -> None:
    """Some runners load a reporter of their own instead. It ended with an INTERNALERROR."""
    suite.write(test_a="def test_1(): pass\ndef test_2(): assert 0\n")
    ours = suite.pytest(*ONCE, "-p", "no:terminal", *flags, devices="cpu:2")
    assert ours.verdicts == {"test_1": "passed", "test_2": "failed"}, ours.output
    assert ours.status == 1


#: As in flash-attention: the first worker asks for the devices, and the others wait for its answer.
ELECTS = """
    import os, pathlib, select, tempfile
    def pytest_configure(config):
        worker = os.environ.get("PYTEST_XDIST_WORKER")
        answer = pathlib.Path(tempfile.gettempdir(), os.environ["ELECTION"])
        if worker == "gw0": answer.write_text("0")
        while worker and not answer.exists(): select.select([], [], [], 0.01)
        if worker: os.environ["MY_NPU"] = answer.read_text()
"""

MEETS = """
    import os, pathlib, select, tempfile
    def test_{own}(device):
        shared = pathlib.Path(os.environ["SHARED"])
        (shared / "{own}").touch()
        while not (shared / "{other}").exists(): select.select([], [], [], 0.01)
        with open(os.environ["LOG"], "a") as log:
            log.write(f"{{device.names}} {{os.environ['MY_NPU']}} {{tempfile.gettempdir() != str(shared)}}\\n")
"""


def test_workers_that_wait_for_each_other_meet_and_keep_their_own_device(suite) -> None:
    """Each had a TMPDIR of its own from the beginning: they waited for ever. And all would have used the first device."""
    suite.variables |= {"ELECTION": f"election-{suite.tag}", "TMPDIR": str(suite.path)}
    suite.variables["SHARED"] = str(suite.path)
    suite.write(conftest=ELECTS, test_a=MEETS.format(own="a", other="b"), test_b=MEETS.format(own="b", other="a"))
    flags = ["--ondol-start=spawn", "--ondol-device-env=MY_NPU", "--ondol-timeout=100"]
    ours = suite.pytest(*ONCE, *flags, devices="sim:2")
    assert "2 passed" in ours.summary, ours.output
    assert sorted(ours.log) == ["('sim0',) 0 True", "('sim1',) 1 True"], ours.output


@pytest.mark.parametrize("flags", [[], ["--ondol-start=spawn"]])
def test_a_conftest_that_stops_the_session_in_a_worker_stops_the_run(suite, flags) -> None:
    """A device that is gone fails every test: all of them were run."""
    suite.write(
        conftest="""
            import pytest
            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_makereport(item):
                report = yield
                if report.failed: item.session.shouldstop = "the device is gone"
                return report
        """,
        test_a="import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_a(n): assert n\n",
    )
    plain, ours = suite.plain(), suite.pytest(*ONCE, *flags)
    assert (plain.status, ours.status) == (2, 2), ours.output
    assert "Interrupted: the device is gone" in ours.output
    assert "not-run" in ours.verdicts.values()


IDS = {
    # PyTorch's reruns of disabled tests.
    "copies": """
        import copy
        def pytest_collection_modifyitems(items):
            items += [copy.copy(item) for item in items]
            for item in items: item._initrequest()
    """,
    # TensorRT-LLM puts the name of a GPU before each.
    "prefixes": """
        import pytest
        class Case(pytest.Item):
            def runtest(self): assert self.name == "good"
        class Cases(pytest.File):
            def collect(self):
                for name in ("good", "bad"): yield Case.from_parent(self, name=name, nodeid=f"H200/cases.txt::{name}")
        def pytest_collect_file(parent, file_path):
            if file_path.name == "test_a.py": return Cases.from_parent(parent, path=file_path)
    """,
}


@pytest.mark.parametrize("way", IDS)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_ids_that_lead_to_two_items_or_to_no_file_are_found(suite, way, start) -> None:
    suite.write(conftest=IDS[way], test_a="def test_good(tmp_path): pass\ndef test_bad(): assert 0\n")
    plain, ours = suite.plain(), suite.pytest(*ONCE, f"--ondol-start={start}")
    assert ours.summary == plain.summary, ours.output
    assert ours.outcomes == plain.outcomes


#: As quack does in workers of xdist, while a kernel is compiled.
PUTS_OFF = """
    import os, pytest
    from _pytest.runner import runtestprotocol
    class Later:
        put_off = []
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(self, item):
            self.put_off.append(item)
            if item.name == "test_1": return True
            for one in self.put_off:
                for report in runtestprotocol(one, log=False, nextitem=None): one.ihook.pytest_runtest_logreport(report=report)
            return True
    def pytest_configure(config): config.pluginmanager.register(Later())
"""


def test_a_test_that_was_put_off_is_an_error_of_its_own(suite) -> None:
    """The next one was called failed, and why the first one was an error nobody said."""
    suite.write(conftest=PUTS_OFF, test_a="def test_1(): assert 0\ndef test_2(): pass\n")
    ours = suite.pytest(*ONCE)
    assert ours.verdicts == {"test_1": "error", "test_2": "passed"}
    assert "nobody reported on it while it ran: a conftest or plugin with a pytest_runtest_protocol" in ours.output
    assert ours.status == 1


def test_a_fixture_that_ends_the_session_is_named_with_what_it_said(suite) -> None:
    """DeepSpeed checks its torch like this. The items in hand were errors without a reason."""
    suite.write(
        conftest="""
            import pytest
            @pytest.fixture(autouse=True)
            def check(): pytest.exit("this torch is too old", returncode=2)
        """,
        test_a="def test_1(): pass\n",
    )
    plain, ours = suite.plain(), suite.pytest(*ONCE)
    assert (plain.status, ours.status) == (2, 2), ours.output
    assert ours.record.items[0].why == "ended the session with pytest.exit: this torch is too old"


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_module_that_chooses_the_first_device_runs_on_that_of_its_worker(suite, start) -> None:
    """Everybody who has one device writes this line. In spawned workers all tests of such a module were on one device."""
    suite.write(
        test_a="""
            import os, pytest
            os.environ["MY_NPU"] = "0"
            @pytest.mark.parametrize("n", range(4))
            def test_a(device, n): assert os.environ["MY_NPU"] == device.visible
        """
    )
    flags = ["--ondol-device-env=MY_NPU", "--ondol-isolate=item", f"--ondol-start={start}"]
    ours = suite.pytest(*ONCE, *flags, devices="sim:2")
    assert "4 passed" in ours.summary, ours.output
    assert {attempt.device for item in ours.record.items for attempt in item.attempts} == {"sim0", "sim1"}


def test_a_hang_shows_its_stacks_after_a_fixture_that_puts_back_all_signals(suite) -> None:
    """Lightning's does, after each test; the handler that writes the stacks is not Python's, and was lost."""
    suite.write(
        conftest="""
            import pytest, signal
            @pytest.fixture(autouse=True)
            def put_back():
                fixed = {signal.SIGKILL, signal.SIGSTOP}
                before = {number: signal.getsignal(number) for number in signal.valid_signals() - fixed}
                yield
                for number, handler in before.items():
                    if handler is not None: signal.signal(number, handler)
        """,
        test_a="""
            import pytest, select
            def test_1(): pass
            @pytest.mark.ondol(timeout=1)
            def test_2(): select.select([], [], [])
        """,
    )
    ours = suite.pytest(*ONCE)
    assert ours.verdicts == {"test_1": "passed", "test_2": "timeout"}, ours.output
    assert "in test_2" in ours.record.items[1].attempts[0].dump
