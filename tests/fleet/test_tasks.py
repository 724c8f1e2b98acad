"""Tasks: commands and warm runtimes, with the simulated accelerator of `examples/tasks` built for real."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "tasks"


@pytest.fixture
def example(suite, monkeypatch):
    shutil.copytree(EXAMPLE, suite.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("build", "__pycache__"))
    monkeypatch.setenv("SIM_BUILD", str(suite.path / "build"))
    return suite


def short(result) -> dict[str, str]:
    return {item.nodeid.split("::")[1]: item.verdict for item in result.record.items}


def task_file(suite, name: str, body: str) -> None:
    (suite.path / f"{name}.ondol.toml").write_text(body)


def runtime_task(name: str, kernel: str, expected: str = "[2.0, 3.0, 4.0, 5.0]") -> str:
    return (
        f'[[task]]\nname = "{name}"\nruntime = "unique"\nkernel = "{kernel}"\n'
        f"data = [1.0, 2.0, 3.0, 4.0]\nexpected = {expected}\n"
    )


UNIQUE = '[runtime.unique]\nclass = "simruntime:UniquePaths"\n'


def test_the_example_runs(example) -> None:
    result = example.pytest(devices="sim:2")
    assert set(short(result)) == {"add", "triple", "add-fixed", "triple-fixed", "hello"}
    assert set(short(result).values()) == {"passed"}


def test_a_fixed_path_gives_a_task_the_wrong_code_and_is_found_out(example) -> None:
    """Seed 003: the second kernel at the same path runs the first one's code."""
    result = example.pytest("-k", "fixed", devices="sim:1")
    first, second = sorted(result.record.items, key=lambda item: item.attempts[0].started)
    assert first.verdict == "passed"
    assert not first.flaky
    assert second.attempts[0].outcome == "failed"
    assert second.flaky
    assert "state-leak suspect" in second.why
    assert [kind for kind, _ in second.attempts[0].dirt] == ["stale library"]
    assert "kernel.so was replaced under a mapping" in second.attempts[0].dirt[0][1]


def test_unique_paths_are_the_cure_and_keep_the_runtime_warm(example) -> None:
    result = example.pytest("-k", "not fixed and not hello", devices="sim:1")
    assert short(result) == {"add": "passed", "triple": "passed"}
    assert not any(item.flaky or item.attempts[0].dirt for item in result.record.items)
    assert len({item.attempts[0].worker for item in result.record.items}) == 1, "one warm worker for both"


def test_a_compile_error_belongs_to_its_own_task_and_holds_no_device(example) -> None:
    task_file(example, "compile", UNIQUE + runtime_task("good", "add.c") + runtime_task("bad", "broken.c"))
    result = example.pytest("compile.ondol.toml", devices="sim:1")
    assert short(result) == {"good": "passed", "bad": "error"}
    bad = result.record.items[1]
    assert "does not compile" in result.output
    assert [a.device for a in bad.attempts] == [""], "no device was held"


def test_preparing_runs_ahead_in_parallel_without_a_device(suite) -> None:
    """Each preparation waits until another one has begun: one after the other, they would never end."""
    suite.write(
        rt="""
        import os, select
        class Runtime:
            def prepare(self, task):
                assert "ONDOL_DEVICE" not in os.environ
                open(f"{task.directory}/begun-{task.name}", "w").close()
                other = {"a": "b", "b": "a"}[task.name]
                while not os.path.exists(f"{task.directory}/begun-{other}"):
                    select.select([], [], [], 0.01)
                return {"made by": os.getpid()}
            def open(self, device):
                self.device = device
            def run(self, task):
                assert task.prepared["made by"] != os.getpid()
                assert os.environ["ONDOL_DEVICE"] == self.device.names[0] == "sim0"
        """
    )
    body = '[runtime.r]\nclass = "rt:Runtime"\n' + "".join(f'[[task]]\nname = "{n}"\nruntime = "r"\n' for n in "ab")
    task_file(suite, "t", body)
    assert set(short(suite.pytest("--ondol-timeout=20", devices="sim:1")).values()) == {"passed"}


def test_a_sticky_device_error_costs_one_task(example) -> None:
    tasks = [runtime_task(f"t{n}", "faulty.c" if n == 2 else "add.c") for n in range(6)]
    task_file(example, "sticky", UNIQUE + "".join(tasks))
    result = example.pytest("sticky.ondol.toml", devices="sim:1")
    assert result.record.counts() == {"passed": 5, "failed": 1}
    assert "sticky error 700" in result.record.items[2].why


def test_a_crash_while_preparing_is_that_tasks_crash(suite) -> None:
    suite.write(
        rt="""
        import os
        class Runtime:
            def prepare(self, task):
                if task["bad"]: os.abort()
            def run(self, task): pass
        """
    )
    body = '[runtime.r]\nclass = "rt:Runtime"\n[[task]]\nname = "bad"\nruntime = "r"\nbad = true\n[[task]]\nname = "good"\nruntime = "r"\nbad = false\n'
    task_file(suite, "t", body)
    result = suite.pytest(devices="sim:1")
    assert short(result) == {"bad": "crashed", "good": "passed"}
    assert result.status == 1


def test_a_device_where_no_runtime_opens_is_set_aside(suite) -> None:
    """D11: a finding about the device, and not eight failures. The good device waits until the bad one was found out."""
    suite.write(
        rt="""
        import os, select
        LOG = os.environ["LOG"]
        class Runtime:
            def open(self, device):
                if device.names == ("sim0",):
                    with open(LOG, "a") as log: log.write("failed\\n")
                    raise OSError("set_device failed with code 507899")
            def run(self, task):
                while len(open(LOG).readlines()) < 2: select.select([], [], [], 0.005)
        """
    )
    body = '[runtime.r]\nclass = "rt:Runtime"\n' + "".join(
        f'[[task]]\nname = "t{n}"\nruntime = "r"\n' for n in range(8)
    )
    task_file(suite, "t", body)
    result = suite.pytest("--ondol-retries=3", devices="sim:2")
    assert result.status == 0
    assert set(short(result).values()) == {"passed"}
    (quarantine,) = result.record.quarantines
    assert quarantine.device == "sim0"
    assert "507899" in quarantine.why
    assert "quarantined: sim0: " in result.output
    assert {item.attempts[-1].device for item in result.record.items} == {"sim1"}


def test_a_task_that_waits_for_its_runtime_on_a_device_that_is_set_aside_is_not_lost(suite) -> None:
    """The third task is handed over and waits for a worker with another runtime when the second proves the device bad."""
    suite.write(
        rt="""
        class One:
            def open(self, device): raise OSError("set_device failed with code 507899")
            def run(self, task): pass
        class Another(One): pass
        """
    )
    body = '[runtime.one]\nclass = "rt:One"\n[runtime.another]\nclass = "rt:Another"\n'
    body += "".join(
        f'[[task]]\nname = "t{n}"\nruntime = "{r}"\n' for n, r in enumerate(("one", "one", "another", "another"))
    )
    task_file(suite, "t", body)
    result = suite.pytest(devices="sim:1")
    assert set(short(result).values()) == {"device-lost"}
    assert [quarantine.device for quarantine in result.record.quarantines] == ["sim0"]


def test_two_runtimes_that_take_turns_are_not_opened_for_every_task(suite) -> None:
    suite.write(
        rt="""
        import os
        class One:
            def open(self, device): open(os.environ["LOG"], "a").write(type(self).__name__ + " opened\\n")
            def run(self, task): open(os.environ["LOG"], "a").write(task.name + "\\n")
        class Another(One): pass
        """
    )
    body = '[runtime.one]\nclass = "rt:One"\n[runtime.another]\nclass = "rt:Another"\n'
    body += "".join(f'[[task]]\nname = "t{n}"\nruntime = "{("one", "another")[n % 2]}"\n' for n in range(6))
    task_file(suite, "t", body)
    result = suite.pytest(devices="sim:1")
    assert set(short(result).values()) == {"passed"}
    assert result.log == ["One opened", "t0", "t2", "t4", "Another opened", "t1", "t3", "t5"]


def test_commands_have_deadlines_outcomes_and_output(suite) -> None:
    task_file(
        suite,
        "c",
        """
        [[task]]
        name = "ok"
        command = ["sh", "-c", "echo on {device} $X"]
        env = { X = "marks the spot" }
        [[task]]
        name = "bad"
        command = ["sh", "-c", "echo said before; exit 3"]
        [[task]]
        name = "killed"
        command = ["sh", "-c", "kill -SEGV $$"]
        [[task]]
        name = "missing"
        command = ["no-such-program-anywhere"]
        [[task]]
        name = "hangs"
        command = ["sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600"]
        timeout = 1
        [[task]]
        name = "unprepared"
        prepare = ["sh", "-c", "echo no compiler; exit 1"]
        command = ["true"]
        """,
    )
    result = suite.pytest("--ondol-grace=0.2", "-rA", devices="sim:1")
    bad = {"bad": "failed", "killed": "failed", "missing": "failed", "hangs": "timeout", "unprepared": "error"}
    assert short(result) == {"ok": "passed", **bad}
    for text in ("on sim marks the spot", "said before", "exit status 3", "killed by SIGSEGV", "no compiler"):
        assert text in result.output
    assert suite.all_gone()


#: What stands in a file → what is said of it.
NONSENSE = {
    "[[task]]\ncommand = ['true']\n": "has no name",
    "[[task]]\nname = 'x'\n": "names no command and no runtime",
    "[[tasks]]\nname = 'x'\n": "there is no table 'tasks' in a task file; did you mean 'task'?",
    "[[task]]\nname = 'x'\ncommand = ['true']\n" * 2: "two tasks are called 'x'",
    "[[task]]\nname = 'x'\ncommand = ['true']\ndirectory = 'gone'\n": "there is no directory 'gone'",
    "discover = 'nowhere:find'\n": "discover: cannot load 'nowhere:find'",
    "[runtime.r]\nclass = 'nowhere:R'\n": "cannot load 'nowhere:R'",
    "this is not toml": "{file}",
    'discover = "rt:fails"\n': "LookupError: no platform a2a3 here",
    'discover = "rt:nonsense"\n': "rt:nonsense failed",
}


@pytest.fixture(scope="module")
def broken(new_suite: Callable[[], Suite]) -> Result:
    """All of it in one suite, a file each."""
    suite = new_suite().write(rt=CASES)
    for number, body in enumerate(NONSENSE):
        task_file(suite, f"broken{number}", body)
    return suite.pytest()


@pytest.mark.parametrize("number", range(len(NONSENSE)))
def test_a_file_that_makes_no_sense_is_a_collection_error(broken: Result, number: int) -> None:
    assert broken.status == 2
    file = f"broken{number}.ondol.toml"
    said = broken.output.partition(f" ERROR collecting {file} ")[2].partition(" ERROR collecting ")[0]
    body, complaint = list(NONSENSE.items())[number]
    assert complaint.format(file=file) in said, broken.output
    assert not body.startswith("discover") or f"{file}: discover: " in said


CASES = """
    import pathlib
    def find(directory):
        for case in (directory / "cases").iterdir():
            yield {"name": case.name, "directory": f"cases/{case.name}", "runtime": (case / "runtime").read_text()}
    def fails(directory):
        yield {"name": "one", "command": ["true"]}
        raise LookupError("no platform a2a3 here")
    def nonsense(directory):
        return ["paged_attention"]
    class Runtime:
        def run(self, task):
            assert (task.directory / "runtime").exists()
"""
RUNTIMES = '[runtime.graph]\nclass = "rt:Runtime"\n[runtime.tensormap]\nclass = "rt:Runtime"\n'


@pytest.fixture
def cases(suite):
    """Directories of cases, as seed 003 has them, made in an order that is not that of their names."""
    suite.write(rt=CASES)
    for name, runtime in {"vector": "tensormap", "bgemm": "graph", "matmul": "graph", "alltoall": "tensormap"}.items():
        (suite.path / "cases" / name).mkdir(parents=True)
        (suite.path / "cases" / name / "runtime").write_text(runtime)
    task_file(suite, "batch", 'discover = "rt:find"\n' + RUNTIMES)
    return suite


def test_directories_of_cases_are_tasks_with_stable_ids(cases) -> None:
    result = cases.pytest(devices="sim:1")
    assert short(result) == dict.fromkeys(("alltoall", "vector", "bgemm", "matmul"), "passed")
    assert [item.nodeid.split("::")[1] for item in result.record.items] == ["alltoall", "vector", "bgemm", "matmul"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["-k", "graph"], {"bgemm", "matmul"}),
        (["-k", "cases and not vector"], {"bgemm", "matmul", "alltoall"}),
        (["-k", "bgemm"], {"bgemm"}),
        (["--ondol-runtime=tensormap"], {"vector", "alltoall"}),
        (["--ondol-runtime=tensormap", "--ondol-runtime=graph", "-k", "all or mat"], {"matmul", "alltoall"}),
    ],
)
def test_tasks_are_selected_by_name_directory_and_runtime(cases, words, chosen) -> None:
    listed = cases.pytest(*words, "--collect-only", "-q", devices="sim:1").output
    assert {line.partition("::")[2] for line in listed.splitlines() if "::" in line} == chosen


@pytest.mark.parametrize(("name", "near"), [("grpah", "did you mean 'graph'?"), ("zzz", "there are: graph, tensormap")])
def test_an_unknown_runtime_is_refused_with_near_names(cases, name, near) -> None:
    result = cases.pytest(f"--ondol-runtime={name}", devices="sim:1")
    assert result.status == 4
    assert f"--runtime: nothing collected has a runtime '{name}'; {near}" in result.output


def test_ordinary_items_of_one_runtime_share_a_worker_and_no_worker_has_two(suite) -> None:
    suite.write(
        test_a="""
        import os, pytest
        @pytest.fixture(scope="session")
        def runtime(request):
            return open(os.environ["LOG"], "a").write(f"open {os.getpid()}\\n")
        @pytest.mark.parametrize("n", range(6))
        @pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.ondol(runtime=n)) for n in ("one", "two")])
        def test_it(name, n, runtime):
            open(os.environ["LOG"], "a").write(f"{name} {os.getpid()}\\n")
        """
    )
    result = suite.pytest(devices="sim:1")
    assert result.record.counts() == {"passed": 12}
    assert sum(line.startswith("open") for line in result.log) == 2, "they are collected in turns"
    of = {name: {line.split()[1] for line in result.log if line.startswith(name)} for name in ("one", "two")}
    assert len(of["one"]) == len(of["two"]) == 1
    assert of["one"] != of["two"]
    assert set(suite.pytest("--ondol-runtime=two", devices="sim:1").verdicts) == {f"test_it[two-{n}]" for n in range(6)}
