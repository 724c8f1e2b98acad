"""A worker that waits for its next item, and what must not follow from giving it one early.

What a worker holds beside the item that it runs is nobody's yet: another worker may take it, and it must not be run by a
process that its predecessor has spoilt.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

pytestmark = pytest.mark.warm_pytest

#: An item can wait until the next one is in its worker's hands, and every process counts what it says.
CONFTEST = """
import json, os, pathlib, select
from collections import Counter
import pytest
from ondol.fleet import wire

said = Counter()
send = wire.Channel.send

def count(self, *messages):
    said.update(type(message).__name__ for message in messages)
    send(self, *messages)

wire.Channel.send = count

@pytest.fixture
def handed_ahead(request):
    worker = request.config.pluginmanager.get_plugin("ondol-worker").worker
    return lambda: bool(select.select([worker.lane.reading], [], [], 60)[0])

def pytest_sessionfinish(session):
    if session.config.pluginmanager.hasplugin("ondol-worker"):
        pathlib.Path(f"said-{os.getpid()}.json").write_text(json.dumps(said))
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_next_item_is_there_before_the_present_one_ends(suite, start: str) -> None:
    suite.write(
        conftest=CONFTEST,
        test_m="""
        import pytest
        @pytest.mark.parametrize("n", range(12))
        def test_n(n, handed_ahead):
            assert n == 11 or handed_ahead()
        """,
    )
    result = suite.pytest(f"--ondol-start={start}", devices="cpu:1")
    assert set(result.verdicts.values()) == {"passed"}
    assert len(result.verdicts) == 12


def test_a_worker_says_one_thing_per_item(suite) -> None:
    """Also of items that fail, skip, print, and have fixtures."""
    suite.write(
        conftest=CONFTEST,
        test_m="""
        import pytest
        @pytest.fixture
        def thing():
            yield 1
            print("torn down")
        @pytest.mark.parametrize("n", range(20))
        def test_n(n, thing): print("seen", n)
        def test_fails(): assert 0
        def test_skips(): pytest.skip("not here")
        @pytest.mark.xfail
        def test_xfails(): assert 0
        """,
    )
    result = suite.pytest("--ondol-judge=off", "--ondol-retries=0", devices="cpu:1")
    assert result.record.counts() == {"passed": 20, "failed": 1, "skipped": 1, "xfailed": 1}
    said: Counter[str] = Counter()
    for path in suite.path.glob("said-*.json"):
        said.update(json.loads(path.read_text()))
    assert said == {"Hello": 1, "Done": 23}, "`Left` comes after the count"


def test_what_waits_in_busy_hands_is_run_by_idle_ones(suite) -> None:
    """The first item ends when all others have: nobody could run them who cannot take them from its worker."""
    suite.write(
        test_m="""
        import pathlib, time, pytest
        HERE = pathlib.Path(__file__).parent
        def test_waits():
            for _ in range(6000):
                if len(list(HERE.glob("ran-*"))) == 10: return
                time.sleep(0.01)
            raise AssertionError("the others were not run")
        @pytest.mark.parametrize("n", range(10))
        def test_n(n): (HERE / f"ran-{n}").touch()
        """
    )
    result = suite.pytest(devices="cpu:2")
    assert set(result.verdicts.values()) == {"passed"}
    assert all(len(item.attempts) == 1 for item in result.record.items)


#: What the item does when the next one is in its worker's hands.
SPOILT: dict[str, tuple[str, list[str]]] = {
    "a crash": ("os._exit(3)", []),
    "dirt": ("os.open('/etc/hostname', 0)", ["--ondol-hygiene=recycle"]),
    "a deadline": ("time.sleep(600)", ["--ondol-grace=0.2"]),
    "a fault of the device": ("pass", []),
}
FAULT = """
def pytest_ondol_device_fault(item):
    return "gone" if item.name == "test_spoils" and FAULTY else None
"""


@pytest.mark.fault
@pytest.mark.parametrize("what", SPOILT)
def test_nothing_in_its_hands_is_run_by_a_process_that_is_spoilt(suite, what: str) -> None:
    act, flags = SPOILT[what]
    suite.write(
        conftest=CONFTEST + FAULT + f"FAULTY = {what == 'a fault of the device'}\n",
        test_m=f"""
        import os, pathlib, pytest, time
        HERE = pathlib.Path(__file__).parent
        def note(name): (HERE / name).write_text(str(os.getpid()))
        @pytest.mark.ondol(timeout={2 if what == "a deadline" else 600})
        def test_spoils(handed_ahead):
            note("spoils")
            assert handed_ahead()
            {act}
        def test_next(): note("next")
        def test_after_it(): note("after")
        """,
    )
    result = suite.pytest(*flags, "--ondol-retries=0", devices="cpu:1")
    assert (result.verdicts["test_next"], result.verdicts["test_after_it"]) == ("passed", "passed")
    pids = {name: (suite.path / name).read_text() for name in ("spoils", "next")}
    assert pids["spoils"] != pids["next"]
    assert [len(item.attempts) for item in result.record.items][1:] == [1, 1], "begun once"
