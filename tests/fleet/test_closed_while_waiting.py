"""What is open closes while its worker waits for the next item: counted by the runtimes and fixtures themselves, cold."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.warm_pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

RUNTIME = """
import os, select

def log(*words):
    with open(os.environ["LOG"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

class Runtime:
    def open(self, device): log("open", type(self).__name__, os.getpid())
    def run(self, task): log("run", task.name)
    def close(self): log("close", type(self).__name__)

class Slow(Runtime):
    '''A task is prepared only when the one before it has run: its worker has nothing at hand in between.'''
    def prepare(self, task):
        while task["after"] and not os.path.exists(f"{task.directory}/ran-{task['after']}"):
            select.select([], [], [], 0.005)
    def run(self, task):
        open(f"{task.directory}/ran-{task.name}", "w").close()

class Crashes(Slow):
    def run(self, task):
        super().run(task)
        if task["how"] == "crash": os.abort()
        assert task["how"] != "fail"

class BadEnd(Slow):
    def close(self):
        print("said while closing")
        raise RuntimeError("the device would not close")
"""


def task(name: str, runtime: str, **more: str) -> str:
    return f'[[task]]\nname = "{name}"\nruntime = "{runtime}"\n' + "".join(f'{k} = "{v}"\n' for k, v in more.items())


def chain(runtime: str, names: str, **more: dict[str, str]) -> str:
    """Tasks each of which is prepared after the one before it has run."""
    before = dict(zip(names[1:], names, strict=False))
    return "".join(task(n, runtime, after=before.get(n, ""), how=more.get(n, "")) for n in names)  # type: ignore[arg-type]


def write(suite, *runtimes: str, tasks: str) -> None:
    suite.write(rt=RUNTIME)
    head = "".join(f'[runtime.{name}]\nclass = "rt:{name}"\n' for name in runtimes)
    (suite.path / "t.ondol.toml").write_text(head + tasks)


def opens(result) -> int:
    return sum(line.startswith("open ") for line in result.log)


SESSION = """
import os, pytest
def log(*words):
    with open(os.environ["LOG"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")
@pytest.fixture(scope="session", autouse=True)
def session():
    log("session up", os.getpid())
    yield
    log("session down", os.getpid())
@pytest.fixture(scope="module", autouse=True)
def module(request):
    log("up", request.module.__name__, os.getpid())
    yield
    log("down", request.module.__name__, os.getpid())
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_runtime_is_opened_once_although_preparing_is_slower_than_running(suite, start) -> None:
    write(suite, "Slow", tasks=chain("Slow", "abcdef"))
    result = suite.pytest(f"--ondol-start={start}", devices="sim:1")
    assert set(result.verdicts.values()) == {"passed"}
    assert opens(result) == 1


def test_each_device_opens_a_shared_runtime_once(suite) -> None:
    """Whatever is stolen from whom while it waits for its preparation."""
    write(suite, "Slow", tasks=chain("Slow", "abcdefghij"))
    result = suite.pytest(devices="sim:2")
    assert set(result.verdicts.values()) == {"passed"}
    assert opens(result) <= 2


def test_a_worker_waits_for_its_runtime_although_another_ones_task_is_ready(suite) -> None:
    """While a task of the open runtime is being prepared, one of the other is ready: the worker waits."""
    write(suite, "Slow", "Runtime", tasks=chain("Slow", "abcd") + "".join(task(n, "Runtime") for n in "uvw"))
    result = suite.pytest(devices="sim:1")
    assert set(result.verdicts.values()) == {"passed"}
    assert opens(result) == 2
    assert len({line.split()[-1] for line in result.log if line.startswith("open")}) == 2, "one process for each"


def test_the_example_opens_its_two_runtimes_once_each(suite) -> None:
    """Twelve tasks, nothing compiled before."""
    shutil.copytree(EXAMPLES / "simpler", suite.path / "simpler", ignore=shutil.ignore_patterns("build", "__pycache__"))
    for case in list(suite.path.glob("simpler/cases/*/*")):
        if case.name not in {"add", "triple", "reduce", "square"}:
            shutil.rmtree(case)
            continue
        for copy in range(2):
            shutil.copytree(case, case.with_name(f"{case.name}-{copy}"))
    suite.variables |= {"CHIP_LOG": str(suite.log)}
    result = suite.pytest("simpler/chip.ondol.toml", devices="sim:1")
    assert result.record.counts() == {"passed": 12}
    opened = [line.split()[1:] for line in result.log if line.startswith("open")]
    assert sorted(name for name, *_ in opened) == ["host_build_graph", "tensormap_and_ringbuffer"]
    assert len({pid for *_, pid in opened}) == 2
    assert sum(line.startswith("compile") for line in result.log) == 6 + 12, "it was cold"


def test_items_of_several_devices_share_one_session_and_their_modules(suite) -> None:
    body = "import pytest\npytestmark = pytest.mark.ondol(devices=2)\n" + "".join(
        f"def test_{n}(): pass\n" for n in range(3)
    )
    suite.write(conftest=SESSION, test_a=body, test_b=body)
    result = suite.pytest(devices="sim:2")
    assert result.record.counts() == {"passed": 6}
    kinds = Counter(line.rsplit(" ", 1)[0] for line in result.log)
    assert kinds == {
        "session up": 1,
        "session down": 1,
        "up test_a": 1,
        "down test_a": 1,
        "up test_b": 1,
        "down test_b": 1,
    }


def test_no_worker_makes_its_session_twice(suite) -> None:
    body = "import pytest\npytestmark = pytest.mark.ondol(devices=2)\n" + "".join(
        f"def test_{n}(): pass\n" for n in range(6)
    )
    suite.write(conftest=SESSION, test_a=body, test_b="def test_one(): pass\n")
    result = suite.pytest(devices="sim:4")
    assert result.record.counts() == {"passed": 7}
    made = Counter(line for line in result.log if line.startswith("session up"))
    assert set(made.values()) == {1}, "never twice in one process"
    gang_workers = {a.worker for i in result.record.items for a in i.attempts if a.worker.startswith("gang")}
    assert len(gang_workers) <= 2


def test_items_of_several_devices_share_a_runtime_although_they_are_prepared_late(suite) -> None:
    tasks = chain("Slow", "abcd").replace("[[task]]\n", "[[task]]\ndevices = 2\n")
    write(suite, "Slow", tasks=tasks)
    result = suite.pytest(devices="sim:2")
    assert set(result.verdicts.values()) == {"passed"}
    assert opens(result) == 1


@pytest.mark.parametrize(
    ("how", "verdict", "expected"),
    [
        # The warm one, and one in the fresh process that judges.
        ("fail", "failed", 2),
        # The first, the one after the crash, and the fresh one of the second attempt.
        ("crash", "crashed", 3),
    ],
)
def test_a_retry_opens_what_its_fresh_process_must_and_no_more(suite, how, verdict, expected) -> None:
    write(suite, "Crashes", tasks=chain("Crashes", "abcdef", b=how))
    result = suite.pytest("--ondol-retries=1", devices="sim:1")
    assert result.verdicts == {**dict.fromkeys("acdef", "passed"), "b": verdict}
    assert opens(result) == expected


PARAMETERS = """
import os, pytest
@pytest.fixture(scope="session", params=["one", "two"])
def engine(request):
    with open(os.environ["LOG"], "a") as file: file.write(f"engine {request.param} {os.getpid()}\\n")
    return request.param
"""


@pytest.mark.parametrize(("devices", "most"), [("cpu:1", 2), ("cpu:2", 4)])
def test_a_parametrised_session_fixture_is_made_as_seldom_as_with_xdist(suite, devices, most) -> None:
    body = "".join(f"def test_{n}(engine): pass\n" for n in range(3))
    suite.write(conftest=PARAMETERS, **{f"test_{m}": body for m in "abcd"})
    plain = suite.plain()
    assert len(plain.log) == 2
    result = suite.pytest(devices=devices)
    assert result.record.counts() == {"passed": 24}
    assert len(result.log) <= most


def test_a_module_fixture_ends_before_another_modules_items(suite) -> None:
    body = "".join(f"def test_{n}(): pass\n" for n in range(6))
    suite.write(conftest=SESSION, **{f"test_{m}": body for m in "abcde"})
    result = suite.pytest(devices="cpu:2")
    assert result.record.counts() == {"passed": 30}
    by_worker: dict[str, list[str]] = {}
    for line in result.log:
        what, pid = line.rsplit(" ", 1)
        by_worker.setdefault(pid, []).append(what)
    for events in by_worker.values():
        assert events[0] == "session up"
        assert events[-1] == "session down"
        inside = events[1:-1]
        assert [e.split()[0] for e in inside] == ["up", "down"] * (len(inside) // 2), "closed before the next opened"
    # The last modules are divided, and a worker may begin what lay behind an item that its agent took back at that
    # moment: a module can be opened again, but never for each item.
    assert sum(e.startswith("up") for events in by_worker.values() for e in events) <= 15, by_worker


def test_a_runtime_that_cannot_be_closed_after_waiting_is_an_error_of_its_last_task(suite) -> None:
    write(suite, "BadEnd", "Slow", tasks=chain("BadEnd", "ab") + chain("Slow", "xy"))
    result = suite.pytest(devices="sim:1")
    assert result.verdicts == {"a": "passed", "b": "error", "x": "passed", "y": "passed"}
    assert result.status == 1
    assert "the device would not close" in result.output
    assert "said while closing" in result.output.partition("ERRORS")[2], "with the error, not in the middle of the run"
    assert "said while closing" not in result.output.partition("ERRORS")[0]


HANGS = """
import os, pytest, select, signal
def exists(name): return os.path.exists(os.path.join(os.path.dirname(__file__), name))
@pytest.fixture(scope="module", autouse=True)
def module(request):
    yield
    if request.module.__name__ == "test_a":
        BODY
"""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("while True: select.select([], [], [], 1)", "its teardown took longer than 5 s in a fixture finaliser"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    ],
    ids=["hangs", "dies"],
)
def test_what_ends_badly_between_two_items_is_the_earlier_ones(suite, body, why) -> None:
    """The worker of test_a waits, is given an item of test_b, and ends what it had open for test_a first."""
    suite.write(
        conftest=HANGS.replace("BODY", body),
        test_a="def test_only(): open(__file__ + '.ran', 'w').close()\n",
        test_b="""
        import os, select
        def test_first():
            # Until the other worker has taken something of this module.
            here = os.path.dirname(__file__)
            while not os.path.exists(f"{here}/test_a.py.ran") or not os.path.exists(f"{here}/other"):
                select.select([], [], [], 0.005)
        def test_second(): open(os.path.dirname(__file__) + "/other", "w").close()
        def test_third(): open(os.path.dirname(__file__) + "/other", "w").close()
        def test_fourth(): open(os.path.dirname(__file__) + "/other", "w").close()
        """,
    )
    flags = ["--ondol-timeout=200", "--ondol-teardown-timeout=5", "--ondol-grace=0.2", "--ondol-retries=0"]
    result = suite.pytest(*flags, devices="cpu:2")
    assert result.verdicts == {
        "test_only": "crashed",
        **dict.fromkeys(("test_first", "test_second", "test_third", "test_fourth"), "passed"),
    }
    (only,) = (item for item in result.record.items if item.nodeid.endswith("test_only"))
    assert why in only.why
    assert all(len(item.attempts) == 1 for item in result.record.items)


@pytest.mark.parametrize(
    "flags",
    [
        ["--ondol-workers-per-device=2"],
        ["--ondol-isolate=item"],
        ["--ondol-recycle-after=1"],
        ["--ondol-hygiene=recycle"],
        ["-x"],
        ["--ondol-start=spawn", "--ondol-workers-per-device=2"],
    ],
)
def test_nobody_waits_for_ever_for_what_another_holds_open(suite, flags) -> None:
    tasks = chain("Slow", "abcd") + "".join(task(n, "Runtime") for n in "uvw")
    tasks += task("pair", "Runtime").replace("[[task]]\n", "[[task]]\ndevices = 2\n")
    write(suite, "Slow", "Runtime", tasks=tasks)
    suite.write(test_ordinary="def test_one(): pass\ndef test_two(): pass\n")
    result = suite.pytest("--ondol-timeout=60", *flags, devices="sim:2")
    assert set(result.verdicts.values()) == {"passed"}
    assert sum(line.startswith("open") for line in result.log) == sum(line.startswith("close") for line in result.log)
