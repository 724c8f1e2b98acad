"""Runs on several nodes, each started by a command; and everything that such a command can do wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engines.test_unkillable import Clock, Engine
from handmade import present, write_triton_entry
from ondol.engines.links import Links, Terms
from ondol.fleet import messages
from ondol.fleet.record import load
from ondol.host import fixed_place, proctree
from ondol.report import run_markdown
from people import ROOT
from suites import Result, Suite, journal_lines
from warm_pytest import WarmPytest

TWO = ("--launch=sh -c 'exec {agent}'", "--nodes=2")
#: The same without the front, which starts a Python of its own: for what only the plugin and the nodes have to do with.
TWO_BY_PYTEST = ("--ondol-launch=sh -c 'exec {agent}'", "--ondol-nodes=2")

#: `go` lets the items end; they would wait for it for a minute.
HEAD = """
import os, pathlib, time, pytest
HERE = pathlib.Path(__file__).parent
def wait_for_go(name="go"):
    deadline = time.monotonic() + 60
    while not (HERE / name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
"""
WAITING = HEAD + "@pytest.mark.parametrize('n', range(8))\ndef test_n(n): wait_for_go()\n"


def start(suite: Suite, *arguments: str, devices: str = "cpu:2") -> tuple[subprocess.Popen[str], Path]:
    journal = suite.path / "journal.jsonl"
    command = [sys.executable, "-m", "ondol", "test", f"--devices={devices}", f"--journal={journal}"]
    return suite.start([*command, "--native-stacks=0", *arguments]), journal


def begin(suite: Suite, *arguments: str, devices: str = "cpu:2") -> tuple[subprocess.Popen[str] | WarmPytest, Path]:
    """Without the front."""
    journal = suite.path / "journal.jsonl"
    command = [sys.executable, "-m", "pytest", f"--ondol-devices={devices}", f"--ondol-journal={journal}"]
    return suite.begin([*command, "--ondol-native-stacks=0", *arguments]), journal


def end_of(suite: Suite, process: subprocess.Popen[str] | WarmPytest, journal: Path) -> Result:
    output, _ = process.communicate(timeout=suite.patience)
    return Result(present(process.returncode), output, journal=journal)


def events(journal: Path, kind: str) -> list[dict[str, object]]:
    return [event for event in journal_lines(journal) if event["e"] == kind] if journal.exists() else []


def programs(suite: Suite) -> list[int]:
    """Node programs of this suite, without the shells in front of them."""
    return sorted(p for p in suite.survivors() if proctree.describe(p).endswith("-m ondol node"))


def test_what_collecting_prints_is_not_taken_for_a_message(suite: Suite) -> None:
    """And the message of the day, and a write to descriptor 1 from C."""
    suite.write(
        conftest="import os, sys\nprint('{\"e\": \"bye\"}')\nos.write(1, b'no newline')\nsys.__stdout__.write('x' * 9999)\n",
        test_a="import os\nprint('collecting')\ndef test_1():\n    os.write(1, b'noise')\ndef test_2(): pass\n",
    )
    welcome = "--ondol-launch=sh -c 'echo Welcome to {node}; echo; printf %s half-a-line; exec {agent}'"
    result = suite.pytest(welcome, "--ondol-nodes=alpha,beta", devices="cpu:1")
    assert result.status == 0, result.output
    assert result.record.counts() == {"passed": 2}
    assert {item.attempts[-1].device.split("/")[0] for item in result.record.items} <= {"alpha", "beta"}


def test_nodes_that_must_not_fork_run_everything(suite: Suite) -> None:
    suite.write(
        conftest="import threading\nthreading.Thread(target=threading.Event().wait, name='poller', daemon=True).start()\n",
        test_a="def test_1(device):\n    assert device.names == ('node1/cpu0',)\ndef test_2(): pass\n",
    )
    result = suite.pytest("--ondol-launch={agent}", devices="cpu:1")
    assert result.record.counts() == {"passed": 2}, result.output
    assert "poller" in str(events(present(result.journal), "node-up")[0]["mode"])


def test_a_shuffled_collection_is_the_same_collection(suite: Suite) -> None:
    suite.write(
        conftest="import random\ndef pytest_collection_modifyitems(items):\n    random.SystemRandom().shuffle(items)\n",
        test_a="""
        import pytest
        @pytest.mark.parametrize("n", range(40))
        def test_n(n):
            assert n % 2
        """,
    )
    result = suite.pytest(*TWO_BY_PYTEST, "--ondol-judge=off", devices="cpu:1")
    assert result.verdicts == {f"test_n[{n}]": "passed" if n % 2 else "failed" for n in range(40)}, result.output


def test_no_item_gets_devices_of_two_machines(suite: Suite) -> None:
    suite.write(
        test_a="""
        import pytest
        @pytest.mark.ondol(devices=2)
        @pytest.mark.parametrize("n", range(3))
        def test_gang(n, device):
            assert len({name.split("/")[0] for name in device.names}) == 1
        @pytest.mark.ondol(devices=3)
        def test_too_large(): pass
        """
    )
    result = suite.pytest(*TWO_BY_PYTEST, devices="cpu:2")
    assert result.record.counts() == {"passed": 3, "error": 1}, result.output
    assert "needs 3 devices, there are 2 in one node" in result.record.items[3].why


def test_report_files_and_temporary_directories_are_written_by_every_node(suite: Suite) -> None:
    suite.write(
        test_a="""
        import pytest
        @pytest.mark.parametrize("n", range(6))
        def test_n(n, tmp_path):
            assert "base" in str(tmp_path)
            (tmp_path / "file").touch()
        """
    )
    result = suite.pytest(*TWO_BY_PYTEST, "--junitxml=out.xml", f"--basetemp={suite.path / 'base'}", devices="cpu:2")
    assert result.record.counts() == {"passed": 6}, result.output
    assert len(ElementTree.parse(suite.path / "out.xml").findall(".//testcase")) == 6


KERNELS = """
import json, os, subprocess, sys
import pytest

@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_kernel(name, device):
    done = subprocess.run([sys.executable, os.environ["STANDIN"], name], capture_output=True, text=True, check=True)
    with open(os.environ["LOG"], "a") as file:
        file.write(json.dumps({**json.loads(done.stdout), "room": os.environ["ONDOL_ROOM"], "node": device.names[0]}) + "\\n")
    assert os.environ["TRITON_CACHE_DIR"].startswith(os.environ["ONDOL_ROOM"])
"""


def test_every_node_has_a_room_of_its_own(suite: Suite, store_path: Path) -> None:
    suite.write(test_k=KERNELS)
    suite.variables |= {"STANDIN": str(ROOT / "tests" / "programs" / "standin.py"), "ONDOL_STORE": str(store_path)}
    cold = suite.ondol("--tools=triton", *TWO, devices="cpu:1")
    assert cold.status == 0, cold.output
    assert sum(json.loads(line)["compiled"] for line in cold.log) == 3
    rooms = {line["room"]: line["node"] for line in map(json.loads, cold.log)}
    assert len(rooms) == len(set(rooms.values())), "one room per node"
    assert not any(os.path.exists(room) for room in rooms)
    warm = suite.ondol("--tools=triton", "--require-warm", *TWO, devices="cpu:1")
    assert warm.status == 0, warm.output
    assert [json.loads(line)["hits"] for line in warm.log] == [1, 1, 1]
    assert "3 filled" in warm.output


def test_a_run_that_compiled_on_a_node_does_not_count_as_warm(suite: Suite, store_path: Path) -> None:
    suite.write(test_k=KERNELS)
    suite.variables |= {"STANDIN": str(ROOT / "tests" / "programs" / "standin.py"), "ONDOL_STORE": str(store_path)}
    result = suite.ondol("--tools=triton", "--require-warm", *TWO, devices="cpu:1")
    assert result.status == 122, result.output
    assert "not warm" in result.output


def test_a_failed_run_publishes_nothing_from_its_nodes_where_only_success_may(suite: Suite, store_path: Path) -> None:
    suite.write(test_k=KERNELS + "\ndef test_fails():\n    assert False\n")
    suite.variables |= {"STANDIN": str(ROOT / "tests" / "programs" / "standin.py"), "ONDOL_STORE": str(store_path)}
    result = suite.ondol("--tools=triton", "--publish=on-success", *TWO, devices="cpu:1")
    assert result.status == 1, result.output
    assert list(store_path.rglob("*.pack")) == []


def test_a_torn_cache_of_a_node_is_healed_there(suite: Suite) -> None:
    cache = suite.path / "cache"
    bad = write_triton_entry(cache, 1)
    (bad / "add.cubin").write_bytes(b"")
    suite.write(
        test_k=f"""
        import pathlib
        def test_kernel():
            if (pathlib.Path({str(bad)!r}) / "__grp__add.json").exists():
                raise RuntimeError("Triton Error [CUDA]: device kernel image is invalid")
        """
    )
    # Only the node knows which cache it is.
    result = suite.pytest(f"--ondol-launch=env TRITON_CACHE_DIR={cache} {{agent}}", devices="cpu:1")
    assert result.verdicts == {"test_kernel": "passed"}, result.output
    assert [a.outcome for a in result.record.items[0].attempts] == ["cache-fault", "passed"]
    assert events(present(result.journal), "healed")


def test_a_cache_at_a_fixed_path_does_not_keep_a_node_from_starting(suite: Suite, store_path: Path) -> None:
    if why := fixed_place.why_not({"x": "/tmp"}):
        pytest.skip(f"fixed paths are not possible here: {why}")
    suite.write(
        test_a="""
        import os
        def test_1():
            place = os.environ["TORCH_EXTENSIONS_DIR"]
            assert place.startswith("/srv/ondol/torch-extensions")
            os.makedirs(place, exist_ok=True)
            open(place + "/made", "x").close()
        """
    )
    suite.variables["ONDOL_STORE"] = str(store_path)
    result = suite.ondol("--tools=torch-extensions", "--launch={agent}", devices="cpu:1")
    assert result.verdicts == {"test_1": "passed"}, result.output


# ---------------------------------------------------------------------- nodes that do not come


@pytest.mark.fault
def test_waiting_in_a_brokers_queue_is_not_a_tests_time(suite: Suite) -> None:
    """The broker starts nothing before it is told to; the items may take five seconds."""
    suite.write(test_a="def test_1(): pass\n")
    broker = suite.path / "broker"
    broker.write_text(
        '#!/bin/sh\ntouch queued\nwhile ! [ -e go ]; do sleep 0.1; done\necho "your turn" >&2\nshift\nexec "$@"\n'
    )
    broker.chmod(0o755)
    process, journal = begin(
        suite, f"--ondol-launch={broker} --run {{agent}}", "--ondol-timeout=5", "--ondol-startup-timeout=5"
    )
    assert suite.wait_for((suite.path / "queued").exists)
    assert suite.wait_for(lambda: events(journal, "node-waits"))
    # Longer than every limit of an item: the next look of the controller at the engine is seconds away.
    waited = len(events(journal, "node-waits"))
    assert not suite.wait_for(lambda: process.poll() is not None, 6.0)
    assert len(events(journal, "node-waits")) == waited, "nothing new was said"
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert result.verdicts == {"test_1": "passed"}, result.output
    assert float(str(events(journal, "node-up")[0]["waited"])) > 5.0


@pytest.mark.fault
def test_a_broker_that_never_gives_a_device_does_not_hold_up_the_run(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    result = suite.pytest("--ondol-launch=sh -c ': {agent}; exec sleep 600'", "--ondol-engine-timeout=1")
    assert result.status == 121, result.output
    assert result.verdicts == {"test_1": "not-run"}
    assert "node node1 is left out: no agent within 1 s" in result.output
    assert suite.all_gone()


@pytest.mark.fault
def test_a_broker_that_is_given_up_gives_the_device_back(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked to end first, and gives back what it holds. It has time for that: the clock is the test's."""
    broker = suite.path / "broker"
    broker.write_text("#!/bin/sh\ntrap 'touch released; exit 0' TERM\ntouch held\nwhile :; do sleep 0.1; done\n")
    broker.chmod(0o755)
    monkeypatch.chdir(suite.path)
    monkeypatch.setattr(Engine, "command", lambda _self, _node: [str(broker)])
    clock = Clock()
    made = Links(Engine(), Terms({"arguments": []}, messages.Go([], {}, {}), engine_timeout=10.0), clock=clock)
    made.receive(0.0)
    assert suite.wait_for((suite.path / "held").exists)
    clock.now += 11.0
    assert suite.wait_for(lambda: [e for e in made.receive(0.0) if isinstance(e, messages.NodeOut)])
    assert (suite.path / "released").exists()
    made.bury()


@pytest.mark.fault
def test_a_broker_that_ignores_everything_is_not_waited_for(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    deaf = "--ondol-launch=sh -c 'trap \"\" TERM; : {agent}; while :; do sleep 0.1; done'"
    result = suite.pytest(deaf, "--ondol-engine-timeout=1")
    assert result.verdicts == {"test_1": "not-run"}, result.output
    assert suite.all_gone()


@pytest.mark.fault
def test_an_image_that_is_not_there_is_named(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    docker = suite.path / "docker"
    docker.write_text(
        "#!/bin/sh\necho \"Unable to find image '$9' locally\" >&2\necho \"\nRun 'docker run --help'\" >&2\nexit 125\n"
    )
    docker.chmod(0o755)
    suite.variables["PATH"] = f"{suite.path}:{os.environ['PATH']}"
    result = suite.pytest("--ondol-engine=docker:no/such:image", devices="cpu:1")
    assert result.status == 121, result.output
    assert "lost 3 times, at last: Unable to find image" in result.output


@pytest.mark.fault
def test_a_collection_that_crashes_on_one_node_is_named(suite: Suite) -> None:
    suite.write(
        test_a=HEAD + "if os.environ.get('WHERE') == 'bad':\n    os.abort()\ndef test_1(): wait_for_go()\n",
        test_b=HEAD + "def test_2(): wait_for_go()\n",
    )
    process, journal = begin(suite, "--ondol-launch=env WHERE={node} {agent}", "--ondol-nodes=good,bad")
    assert suite.wait_for(lambda: events(journal, "node-out"))
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert result.record.counts() == {"passed": 2}, result.output
    assert "node bad is left out: collection of test_a.py failed there: killed by SIGABRT" in result.output
    assert "node `bad` was left out" in run_markdown.render(result.record)


@pytest.mark.fault
def test_a_collection_that_hangs_on_one_node_does_not_hold_up_the_run(suite: Suite) -> None:
    suite.write(
        test_a=HEAD + "if os.environ.get('WHERE') == 'bad':\n    time.sleep(600)\ndef test_1(): wait_for_go()\n"
    )
    process, journal = begin(
        suite, "--ondol-launch=env WHERE={node} {agent}", "--ondol-nodes=good,bad", "--ondol-collect-timeout=15"
    )
    assert suite.wait_for(lambda: events(journal, "node-out"))
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert result.record.counts() == {"passed": 1}, result.output
    assert "node bad is left out: collection of test_a.py failed there: no progress for 15 s" in result.output
    assert suite.all_gone()


def test_a_node_without_the_wanted_device_is_named(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    suite.variables["CUDA_VISIBLE_DEVICES"] = ""
    result = suite.pytest("--ondol-launch={agent}", devices="cuda:0")
    assert result.status == 121, result.output
    assert "node node1 is left out: --devices: there is no cuda device" in result.output


def test_a_directory_that_is_not_there_is_named(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    result = suite.pytest("--ondol-launch={agent}", "--ondol-node-dir=/no/such/place")
    assert "/no/such/place" in result.output
    assert "node node1 is left out: [Errno 2]" in result.output


# ---------------------------------------------------------------------- nodes that go


@pytest.mark.fault
def test_a_node_that_loses_its_agent_again_and_again_is_left_out(suite: Suite) -> None:
    suite.write(
        test_a=HEAD
        + """
@pytest.mark.parametrize("n", range(12))
def test_n(n, device):
    if device.names[0].startswith("bad/"):
        os.kill(os.getppid(), 9)
        time.sleep(60)
    (HERE / f"good-{n}").touch()
    # The other node must have the time to come back and fail again.
    deadline = time.monotonic() + 60
    while len((HERE / "journal.jsonl").read_text().split('"node-lost"')) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
"""
    )
    process, journal = start(suite, "--launch=env W={node} {agent}", "--nodes=good,bad", devices="cpu:1")
    result = end_of(suite, process, journal)
    record = load(journal)
    assert record.counts() == {"passed": 12}, result.output
    assert len(events(journal, "node-lost")) == 3
    assert [q.device for q in record.quarantines] == ["bad/cpu0"]
    assert "lost 3 times, at last: killed by SIGKILL" in record.quarantines[0].why
    assert sum(item.flaky for item in record.items) == 3


@pytest.mark.fault
def test_bad_devices_of_a_node_are_set_aside(suite: Suite) -> None:
    """Nothing is wrong with its agent; each of its devices is set aside on evidence, and the items pass elsewhere."""
    suite.write(
        test_a=HEAD
        + """
@pytest.mark.parametrize("n", range(30))
def test_n(n, device):
    if device.names[0].startswith("bad/"):
        (HERE / f"{device.names[0][-1]}-{n}.tried").touch()
        raise RuntimeError("CUDA error: device-side assert triggered")
    # Each of the others must have had the chance to spoil enough of them.
    deadline = time.monotonic() + 60
    while min(len(list(HERE.glob(f"{d}-*.tried"))) for d in "01") < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
"""
    )
    result = suite.ondol("--launch=env W={node} {agent}", "--nodes=good,bad", "--retries=2", devices="cpu:2")
    assert result.record.counts() == {"passed": 30}, result.output
    assert {q.device for q in result.record.quarantines} == {"bad/cpu0", "bad/cpu1"}, result.output
    assert "went badly here and passed elsewhere" in result.output


@pytest.mark.fault
def test_a_node_that_is_told_to_go_gets_no_more_work(suite: Suite) -> None:
    """SIGTERM to the node program alone, as `docker stop` does: what runs there may end, and nothing follows it."""
    body = "def test_n(n, device): wait_for_go('go-' + device.names[0].partition('/')[0])\n"
    suite.write(test_a=f"{HEAD}@pytest.mark.parametrize('n', range(8))\n{body}")
    process, journal = begin(suite, *TWO_BY_PYTEST)
    assert suite.wait_for(lambda: len(events(journal, "start")) >= 4)
    os.kill(programs(suite)[0], signal.SIGTERM)
    assert suite.wait_for(lambda: events(journal, "node-notice"))
    gone = str(events(journal, "node-notice")[0]["node"])
    # What its agent was handed ahead is still to be taken back then: what runs there ends when all others have.
    (suite.path / f"go-{({'node1', 'node2'} - {gone}).pop()}").touch()
    assert suite.wait_for(lambda: len(events(journal, "verdict")) == 6)
    (suite.path / f"go-{gone}").touch()
    result = end_of(suite, process, journal)
    assert load(journal).counts() == {"passed": 8}, result.output
    assert not any(item.flaky for item in load(journal).items), "what ran there was not cut off"
    assert sum(str(e["device"]).startswith(f"{gone}/") for e in events(journal, "start")) == 2, "and nothing followed"
    assert f"node {gone} is being taken away: SIGTERM was sent to the node program" in result.output


@pytest.mark.fault
def test_a_silent_node_is_not_waited_for(suite: Suite) -> None:
    """It is stopped, as a frozen machine or a dead connection would be; its items run elsewhere."""
    suite.write(test_a=WAITING)
    process, journal = begin(suite, *TWO_BY_PYTEST, "--ondol-engine-silence=2")
    assert suite.wait_for(lambda: len(events(journal, "start")) >= 4)
    stopped = programs(suite)[0]
    os.kill(stopped, signal.SIGSTOP)
    assert suite.wait_for(lambda: events(journal, "node-lost"))
    (suite.path / "go").touch()
    result = end_of(suite, process, journal)
    assert load(journal).counts() == {"passed": 8}, result.output
    assert "silent for 2 s" in result.output
    assert suite.all_gone()


@pytest.mark.fault
def test_a_frozen_controller_leaves_no_workers_on_its_nodes(suite: Suite) -> None:
    suite.write(test_a=WAITING)
    process, journal = start(suite, *TWO, "--engine-silence=1")
    assert suite.wait_for(lambda: len(events(journal, "start")) >= 4)
    (controller,) = proctree.children(process.pid)
    nodes = programs(suite)
    assert len(nodes) == 2
    os.kill(process.pid, signal.SIGSTOP)
    os.kill(controller, signal.SIGSTOP)
    try:
        workers = [p for n in nodes for p in proctree.descendants(n)]
        assert suite.wait_for(lambda: not any(proctree.alive(p) for p in [*nodes, *workers]))
    finally:
        os.kill(controller, signal.SIGKILL)
        os.kill(process.pid, signal.SIGCONT)
    result = end_of(suite, process, journal)
    assert sum(load(journal).counts().values()) == 8, result.output


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_passed_on_to_nodes(suite: Suite, number: signal.Signals) -> None:
    suite.write(test_a=WAITING)
    process, journal = start(suite, *TWO)
    assert suite.wait_for(lambda: len(events(journal, "start")) >= 4)
    (controller,) = proctree.children(process.pid)
    os.kill(controller, number)
    result = end_of(suite, process, journal)
    assert result.status == 2, result.output
    assert load(journal).counts() == {"not-run": 8}
    assert suite.all_gone()


@pytest.mark.fault
def test_an_interrupt_while_nodes_are_on_their_way_is_heard(suite: Suite) -> None:
    suite.write(test_a="def test_1(): pass\n")
    process, journal = start(suite, "--launch=sh -c ': {agent}; touch queued; exec sleep 600'")
    assert suite.wait_for((suite.path / "queued").exists)
    # Nodes are asked for while pytest still reads its arguments, where an interrupt ends it in another way.
    assert suite.wait_for(lambda: journal.exists() and b'"e": "planned"' in journal.read_bytes())
    (controller,) = proctree.children(process.pid)
    os.kill(controller, signal.SIGINT)
    result = end_of(suite, process, journal)
    assert result.status == 2, result.output
    assert suite.all_gone()
