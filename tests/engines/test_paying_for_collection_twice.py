"""Nodes that are launched when the controller has collected: whatever the suite imports is paid for twice, one after the
other. And nodes that are launched before: what becomes of them when there is no run, and of what they collect meanwhile.

What is waited for here is what somebody has done; never a time. Nobody waits for ever: `wait_for` gives up.
"""

from __future__ import annotations

import os
import signal

import pytest

from engines.test_nodes import end_of, events, start
from engines.test_taken_for_silent import Answers, node_of
from engines.test_unkillable import Clock, Engine
from handmade import present
from ondol import __version__
from ondol.engines import links
from ondol.fleet import messages
from ondol.host import proctree
from suites import Suite

#: Every process says which conftest it has imported; `WHERE` is empty in the controller.
CONFTEST = """
import os, pathlib, select, signal, sys, time
HERE = pathlib.Path(__file__).parent
WHERE = os.environ.get("WHERE", "")
def say(name): (HERE / name).touch()
def wait_for(*names):
    deadline = time.monotonic() + 100
    while not all((HERE / name).exists() for name in names):
        assert time.monotonic() < deadline, f"nobody ever said {names}"
        select.select([], [], [], 0.01)
(HERE / f"new-{WHERE}").write_text(os.environ.get("ONDOL_ROOM", "/"))
(HERE / f"new-{WHERE}").rename(HERE / f"imported-{WHERE}")
"""
#: The controller waits in its conftest until both nodes have imported theirs.
BESIDE = CONFTEST + "WHERE or wait_for('imported-a', 'imported-b')\n"
ONE_BY_PYTEST = ("--ondol-launch=env WHERE={node} {agent}", "--ondol-nodes=a")
ONE = ("--launch=env WHERE={node} {agent}", "--nodes=a")
NODES = ("--launch=env WHERE={node} {agent}", "--nodes=a,b")


def said(suite: Suite, name: str) -> bool:
    return suite.wait_for((suite.path / name).exists)


def nothing_is_left(suite: Suite) -> None:
    """Of nodes that had imported their conftest."""
    assert suite.all_gone()
    rooms = [path.read_text() for path in suite.path.glob("imported-?")]
    assert rooms
    assert not any(map(os.path.exists, rooms)), rooms


def test_nodes_import_beside_the_controller(suite: Suite) -> None:
    # Each waits for the other: one node that is up early would run both.
    both = "import conftest\ndef test_1(): conftest.meet('1', '2')\ndef test_2(): conftest.meet('2', '1')\n"
    suite.write(conftest=BESIDE + "def meet(mine, other):\n    say(mine)\n    wait_for(other)\n", test_a=both)
    result = suite.ondol(*NODES, devices="cpu:1")
    assert result.record.counts() == {"passed": 2}, result.output
    assert len(events(present(result.journal), "node-up")) == 2


def test_a_node_that_is_ready_first_runs_its_part(suite: Suite) -> None:
    """It has collected everything when the controller begins to."""
    ready = "def pytest_collection_finish(): WHERE and say(f'ready-{WHERE}')\n"
    waits = "import conftest\nconftest.WHERE or conftest.wait_for('ready-a')\ndef test_1(): pass\n"
    suite.write(conftest=CONFTEST + ready, test_a=waits)
    result = suite.pytest(*ONE_BY_PYTEST, devices="cpu:1")
    assert result.verdicts == {"test_1": "passed"}, result.output
    assert not events(present(result.journal), "node-out")


def test_a_node_that_waits_for_the_controller_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller collects for longer than a collection may stand still; it asks the node meanwhile."""
    monkeypatch.setattr(links, "Launch", Answers)
    clock = Clock()
    made = links.Links(Engine(), links.Terms({"arguments": []}, collect_timeout=600.0), clock=clock)
    try:
        made.listen(0.0)
        node_of(made).says(messages.Here(__version__, "", 1), messages.Collected([], [], 1, "", "", ""))
        while made.nodes["n1"].offer is None:
            made.listen(1.0)
        clock.now += 1000.0
        made.listen(0.0)
        assert made.nodes["n1"].state == "collecting"
        made.agree(messages.Go([], {}, {}))
        node_of(made).says(messages.Ready())
        while made.nodes["n1"].state != "up":
            made.listen(1.0)
        heard = made.receive(0.0)
        assert [event.collected for event in heard if isinstance(event, messages.NodeUp)] == [0.0], "it waited for us"
    finally:
        made.bury()


def test_nodes_start_after_the_collection_where_that_was_asked_for(suite: Suite) -> None:
    after = CONFTEST + "def pytest_collection_finish(): WHERE or say('collected')\n"
    suite.write(
        conftest=after,
        test_a="import conftest\nFIRST = not (conftest.HERE / 'collected').exists()\ndef test_1(): assert not FIRST\n",
    )
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\nondol_collect_first = true\n")
    result = suite.pytest(*ONE_BY_PYTEST, devices="cpu:1")
    assert result.verdicts == {"test_1": "passed"}, result.output


#: How a run can end before there is one: what the controller does in its conftest, and with which words.
ENDS = {
    "nothing is selected": ("", ("-k", "nothing"), 5),
    "collection fails": ("", (), 2),
    "the conftest fails": ("WHERE or sys.exit('no such thing')", (), None),
    "pytest is left": ("def pytest_collection_finish(): WHERE or __import__('pytest').exit('enough', 7)", (), 7),
    "the process is left": ("WHERE or os._exit(9)", (), None),
}


@pytest.mark.fault
@pytest.mark.parametrize("how", ENDS)
def test_nodes_of_a_run_that_never_was_leave_nothing(suite: Suite, how: str) -> None:
    """They have begun when it ends: one has imported its conftest."""
    ending, words, status = ENDS[how]
    broken = "import conftest\nassert conftest.WHERE\n" if how == "collection fails" else ""
    suite.write(conftest=f"{BESIDE}{ending}\n", test_a=f"{broken}def test_1(): pass\n")
    result = suite.ondol(*NODES, *words, devices="cpu:1")
    assert status in {None, result.status}, result.output
    nothing_is_left(suite)
    assert not any(word in result.output for word in ("left out", "node a", "Traceback")), result.output


@pytest.mark.parametrize("word", ["--collect-only", "--help", "--version", "--markers", "--fixtures"])
def test_no_node_is_launched_for_a_question(suite: Suite, word: str) -> None:
    suite.write(conftest=CONFTEST, test_a="def test_1(): pass\n")
    suite.pytest("--ondol-launch=sh -c 'touch launched; exec {agent}'", word, devices="cpu:1")
    assert not (suite.path / "launched").exists()


@pytest.mark.fault
@pytest.mark.parametrize(
    ("whom", "number"),
    [
        ("front", signal.SIGTERM),
        ("front", signal.SIGKILL),
        ("controller", signal.SIGINT),
        ("controller", signal.SIGTERM),
        ("controller", signal.SIGKILL),
    ],
)
def test_a_signal_while_tests_are_collected_ends_the_nodes_too(suite: Suite, whom: str, number: signal.Signals) -> None:
    suite.write(conftest=CONFTEST, test_a="import conftest\nconftest.wait_for('never')\ndef test_1(): pass\n")
    process, journal = start(suite, *ONE, devices="cpu:1")
    assert said(suite, "imported-a")
    assert suite.wait_for(lambda: events(journal, "collecting"))
    (controller,) = proctree.children(process.pid)
    os.kill(process.pid if whom == "front" else controller, number)
    result = end_of(suite, process, journal)
    if (whom, number) == ("controller", signal.SIGKILL):  # then the file may have done it
        assert "this file ended the process that collected it: killed by SIGKILL" in result.output
    assert number is signal.SIGKILL or result.status == 2, result.output
    nothing_is_left(suite)


@pytest.mark.fault
def test_no_file_is_blamed_for_a_signal_that_came_from_outside(suite: Suite) -> None:
    """On this machine, too: and collection began again without the file."""
    suite.write(conftest=CONFTEST, test_a="import conftest\nconftest.say('here')\nconftest.wait_for('never')\n")
    process, journal = start(suite, devices="cpu:1")
    assert said(suite, "here")
    process.send_signal(signal.SIGTERM)
    result = end_of(suite, process, journal)
    assert result.status == 128 + signal.SIGTERM, result.output
    assert "ended the process that collected it" not in result.output


@pytest.mark.fault
def test_a_collection_that_hangs_here_is_named_by_its_own_line(suite: Suite) -> None:
    hangs = "import conftest, time\nwhile not conftest.WHERE: time.sleep(600)\ndef test_1(): pass\n"
    suite.write(conftest=CONFTEST, test_a=hangs)
    result = suite.ondol(*ONE, "--collect-timeout=15", devices="cpu:1")
    assert f'it hung at File "{suite.path}/test_a.py", line 2' in result.output
    assert suite.all_gone()


@pytest.mark.fault
def test_a_broker_that_queues_is_told_that_there_is_no_run(suite: Suite) -> None:
    """It is asked to end, and hears it."""
    broker = suite.path / "broker"
    broker.write_text("#!/bin/sh\ntrap 'touch released; exit 0' TERM\ntouch queued\nwhile :; do sleep 0.1; done\n")
    broker.chmod(0o755)
    suite.write(conftest=CONFTEST + "wait_for('queued')\n", test_a="import nothing_like_this\n")
    result = suite.pytest(f"--ondol-launch={broker} {{agent}}", devices="cpu:1")
    assert result.status == 2, result.output
    assert (suite.path / "released").exists()
    assert suite.all_gone()


@pytest.mark.fault
def test_a_launch_that_fails_is_told_after_the_collection(suite: Suite) -> None:
    """It has failed for good when the controller goes on collecting; it is told where such things are told."""
    launch = "--ondol-launch=sh -c 'echo no such image >&2; echo >> tries; : {agent}; exit 125'"
    tried = "import conftest, select\nHERE = conftest.HERE\n"
    tried += "while (HERE / 'tries').read_text() != '\\n' * 3: select.select([], [], [], 0.01)\n"
    suite.write(conftest=CONFTEST + "wait_for('tries')\n", test_a=tried + "def test_1(): pass\n")
    result = suite.pytest(launch, devices="cpu:1")
    assert result.status == 121, result.output
    assert result.verdicts == {"test_1": "not-run"}
    before, _, after = result.output.partition("collected 1 item")
    assert "no such image" not in before
    assert "node node1 is left out: lost 3 times, at last: no such image" in after


#: The collection writes a file of tests, and says so when it has begun and when it has ended.
WRITES = """
if not WHERE:
    (HERE / "test_made.py").write_text({half!r})
    wait_for("seen")
    (HERE / "test_made.py").write_text("def test_1(): pass\\ndef test_2(): pass\\n")
else:
    wait_for("test_made.py")
def pytest_collection_finish():
    if WHERE: say("seen")
"""


@pytest.mark.parametrize("half", ["def test_1(): pass\n", "def test_1("], ids=["other tests", "an error"])
def test_a_node_that_met_half_written_files_collects_once_more(suite: Suite, half: str) -> None:
    """As when it was launched afterwards: it collects once more."""
    suite.write(conftest=CONFTEST + WRITES.format(half=half))
    result = suite.pytest(*ONE_BY_PYTEST, devices="cpu:1")
    assert result.record.counts() == {"passed": 2}, result.output
    assert not events(present(result.journal), "node-out")
    assert "it collected twice: beside the controller's own collection that had failed" in result.output
    assert "--collect-first" in result.output


FORKS = """
import threading, warnings
if not WHERE:
    wait_for("imported-a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a thread at a fork is one, from Python 3.12 on
        pid = os.fork()
    if not pid:
        threads = [t.name for t in threading.enumerate()]
        handler = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        (HERE / "child").write_text(f"{threads} {handler}")
        say("forked")
        signal.pause()
    wait_for("forked")
"""


def test_a_process_that_a_conftest_forks_does_not_keep_the_nodes(suite: Suite) -> None:
    """It lives on when the run is over, and when there was none: the nodes hear the end of it all the same."""
    suite.write(conftest=CONFTEST + FORKS, test_a="def test_1(): pass\n")
    result = suite.ondol(*ONE, devices="cpu:1")
    assert result.verdicts == {"test_1": "passed"}, result.output
    assert (suite.path / "child").read_text() == "['MainThread'] True"
    (suite.path / "forked").unlink()
    process, journal = start(suite, *ONE, "-k", "nothing", devices="cpu:1")
    assert said(suite, "forked")
    assert end_of(suite, process, journal).status == 5
    assert suite.all_gone()
