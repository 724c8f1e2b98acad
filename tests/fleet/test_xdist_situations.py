"""Situations that pytest-xdist's acceptance tests are about, each as a small suite, against plain pytest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ondol.report import run_junit
from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

#: Flags that make a run of ours comparable: every item runs once.
ONCE = ["--ondol-judge=off", "--ondol-retries=0"]


def both(suite, *flags: str, devices: str = "cpu:2"):
    """Plain pytest and ours with two workers: the same reports of the same items, the same status and counts."""
    plain = suite.plain(*(flag for flag in flags if "ondol" not in flag))
    ours = suite.pytest(*ONCE, *flags, devices=devices)
    the_same(plain, ours)
    return plain, ours


def the_same(plain: Result, ours: Result) -> None:
    assert ours.outcomes == plain.outcomes, ours.output
    assert ours.status == plain.status
    assert ours.summary == plain.summary


@pytest.fixture(scope="module")
def odd_names(new_suite: Callable[[], Suite]) -> tuple[Suite, Result]:
    """A suite of them, and what plain pytest says."""
    suite = new_suite().write(
        test_ids="""
        import pytest
        odd = ["", " ", "a b", "a::b", "a/b", "[x]", "]", "ü", "\\u4e2d", "\\n", "\\0", "\\x1b[31m", "'\\"", "-k", "\\\\", "\\ud800", "x" * 300]
        @pytest.mark.parametrize("text", odd)
        def test_text(text): assert text != "ü"
        @pytest.mark.parametrize("raw", [b"\\xff\\0", b"plain"])
        def test_bytes(raw): pass
        @pytest.mark.parametrize("x", [1, 1, 1])
        def test_same(x): pass
        """
    )
    (suite.path / "test_with space-ü.py").write_text("def test_here(): pass\n")
    return suite, suite.plain()


@pytest.mark.parametrize("flag", ["-v", "--ondol-start=spawn"])
def test_names_with_special_characters_come_back_as_they_went(odd_names, flag, tmp_path: Path) -> None:
    """Ids travel to a worker and back, into the journal, JUnit and the terminal."""
    suite, plain = odd_names
    ours = suite.pytest(*ONCE, flag, f"--junitxml={tmp_path / 'out.xml'}", devices="cpu:2")
    the_same(plain, ours)
    assert len(ours.record.items) == 23
    assert ElementTree.parse(tmp_path / "out.xml").getroot()[0].get("tests") == "23"


IN_A_FIXTURE = [("setup", "function"), ("setup", "module"), ("teardown", "function")]


def with_a_bad_fixture(when: str, scope: str) -> str:
    body = "os.abort(); yield" if when == "setup" else "yield; os.abort()"
    fixture = f"import os, pytest\n@pytest.fixture(scope='{scope}')\ndef bad():\n    {body}\n"
    return fixture + "def test_1(): pass\ndef test_2(bad): pass\n"


@pytest.fixture(scope="module")
def crashes(new_suite: Callable[[], Suite]) -> Result:
    """In one case of a parametrised test, and in each phase of fixtures."""
    suite = new_suite().write(
        test_p="import os, pytest\n@pytest.mark.parametrize('n', range(8))\ndef test_n(n):\n    if n == 3: os.abort()\n"
    )
    for when, scope in IN_A_FIXTURE:
        suite.write(**{f"test_{when}_{scope}": with_a_bad_fixture(when, scope)})
    return suite.pytest(*ONCE, devices="cpu:2")


def verdicts_of(result: Result, name: str) -> dict[str, str]:
    parts = [(*item.nodeid.split("::"), item.verdict) for item in result.record.items]
    return {test: verdict for file, test, verdict in parts if file == f"{name}.py"}


@pytest.mark.fault
def test_a_crash_in_one_case_of_a_parametrised_test_costs_that_case(crashes) -> None:
    assert verdicts_of(crashes, "test_p") == {f"test_n[{n}]": "crashed" if n == 3 else "passed" for n in range(8)}
    assert crashes.record.counts() == {"passed": 10, "crashed": 4}
    assert "1 failed" in crashes.summary
    assert crashes.status == 1


@pytest.mark.fault
@pytest.mark.parametrize(("when", "scope"), IN_A_FIXTURE)
def test_a_crash_in_a_fixture_names_the_item_and_the_phase(crashes, when, scope) -> None:
    name = f"test_{when}_{scope}"
    assert verdicts_of(crashes, name) == {"test_1": "passed", "test_2": "crashed"}, crashes.output
    assert [f"{name}.py::test_2", when, "failed", ""] in crashes.seen


@pytest.mark.fault
def test_a_crash_in_a_finaliser_of_a_module_names_its_last_item(suite) -> None:
    """In a suite of its own: where more files are left, a worker helps out before its modules are over."""
    suite.write(test_f=with_a_bad_fixture("teardown", "module"), test_g="def test_3(): pass\n")
    ours = suite.pytest(*ONCE, devices="cpu:2")
    assert ours.verdicts == {"test_1": "passed", "test_2": "crashed", "test_3": "passed"}, ours.output
    assert ours.status == 1
    assert ["test_f.py::test_2", "teardown", "failed", ""] in ours.seen


@pytest.mark.fault
def test_the_first_crash_stops_a_run_that_stops_at_the_first_failure(suite) -> None:
    suite.write(
        test_x="import os, pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_n(n):\n    if n == 2: os.abort()\n"
    )
    one = suite.pytest(*ONCE, "-x", devices="cpu:1")
    assert list(one.verdicts.values()) == ["passed", "passed", "crashed"] + ["not-run"] * 37
    assert one.status == 1
    assert "stopping after 1 failures" in one.output


@pytest.mark.parametrize("limit", [1, 3])
def test_the_limit_of_failures_is_kept_with_several_workers(suite, limit) -> None:
    """Everything fails in four workers at once: what was under way may still end, nothing new may start."""
    body = "import pytest\n@pytest.mark.parametrize('n', range(25))\ndef test_n(n): assert 0\n"
    suite.write(**{f"test_{name}": body for name in "abcd"})
    ours = suite.pytest(*ONCE, f"--maxfail={limit}", devices="cpu:4")
    counts = ours.record.counts()
    assert limit <= counts["failed"] <= limit + 4
    assert counts["failed"] + counts["not-run"] == 100
    assert f"stopping after {limit} failures" in ours.output
    assert ours.status == 1
    assert suite.all_gone()


def test_modules_that_skip_themselves_are_counted_once(suite) -> None:
    """They are collected in the controller and again by spawned workers."""
    suite.write(
        test_a="import pytest\npytest.skip('not here', allow_module_level=True)\n",
        test_b="import pytest\npytest.importorskip('no_such_module_anywhere')\n",
        test_c="import pytest\npytestmark = pytest.mark.skip(reason='all')\ndef test_1(): pass\ndef test_2(): pass\n",
        test_d="def test_3(): pass\n",
    )
    plain = suite.plain("-rs")
    for flags in ([], ["--ondol-start=spawn"]):
        ours = suite.pytest(*ONCE, "-rs", *flags, devices="cpu:2")
        the_same(plain, ours)
        assert ours.summary == "1 passed, 4 skipped"
        assert ours.output.count("not here") == 1


@pytest.mark.parametrize("flags", [[], ["--continue-on-collection-errors"], ["--continue-on-collection-errors", "-x"]])
def test_a_file_that_cannot_be_collected_is_an_error_as_in_plain_pytest(suite, flags) -> None:
    suite.write(test_a="import no_such_module_anywhere\n", test_b="def test_1(): pass\n", test_c="def test_(:\n")
    both(suite, *flags)


def test_a_test_that_ends_the_session_does_so_for_every_worker(suite) -> None:
    suite.write(
        test_a="import pytest\ndef test_1(): pytest.exit('enough of this', 7)\n",
        test_b="import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_n(n): pass\n",
    )
    plain, ours = suite.plain(), suite.pytest(*ONCE, devices="cpu:2")
    assert ours.status == plain.status == 7
    assert "enough of this" in ours.output
    assert sum(ours.record.counts().values()) == 51
    assert suite.all_gone()


def test_cases_that_differ_from_process_to_process_are_named(suite) -> None:
    """An id made of the process's number: a spawned worker collects another one and says which."""
    suite.write(
        test_u="""
        import os, pytest
        @pytest.mark.parametrize("x", [f"id-{os.getpid()}", "stable"])
        def test_x(x): pass
        @pytest.mark.parametrize("x", [1, 1])
        def test_twice(x): pass
        """
    )
    forked = suite.pytest(*ONCE)
    assert set(forked.verdicts.values()) == {"passed"}, "a fork has collected what the controller collected"
    spawned = suite.pytest(*ONCE, "--ondol-start=spawn")
    unstable = [item for item in spawned.record.items if "id-" in item.nodeid]
    assert [item.verdict for item in unstable] == ["error"]
    assert "was collected by the controller, not by this worker" in spawned.output
    assert [v for name, v in spawned.verdicts.items() if "id-" not in name] == ["passed"] * 3


def test_warnings_of_workers_are_in_the_summary(suite) -> None:
    suite.write(
        test_w="""
        import pytest, warnings
        class Own(UserWarning): pass
        @pytest.fixture(scope="module")
        def old():
            warnings.warn("from a fixture", DeprecationWarning)
            yield
            warnings.warn("from a finaliser", DeprecationWarning)
        def test_1(old): warnings.warn("from a test", Own)
        @pytest.mark.parametrize("n", range(3))
        def test_n(n): warnings.warn("many times")
        """,
        test_v="""
        import pytest, warnings
        warnings.warn("while collecting")
        @pytest.mark.filterwarnings("error")
        def test_strict(): warnings.warn("an error")
        """,
    )
    # One worker: with two, items of a module may be shared at the end, and then a wider fixture's finaliser runs when its
    # worker leaves, after the last item that could carry its warning.
    plain, ours = both(suite, devices="cpu:1")
    for text in ("from a fixture", "from a finaliser", "from a test", "many times", "while collecting"):
        assert text in ours.output, text
    assert listed_warnings(ours.output) == listed_warnings(plain.output)


def listed_warnings(output: str) -> list[str]:
    text = output.partition("warnings summary")[2].partition("Docs:")[0]
    return sorted(line.strip() for line in text.splitlines() if "Warning:" in line or "Own:" in line)


def test_paths_arguments_and_environment_are_those_of_the_controller(suite) -> None:
    """What differs on purpose: the device's variables, the worker's name, TMPDIR, and the caps of thread pools."""
    suite.write(
        conftest="import os, sys\nsys.path.append('/made/by/conftest')\nos.environ['MADE_BY'] = 'conftest'\n",
        test_e="""
        import json, os, sys
        def test_e(request, pytestconfig):
            keep = {k: v for k, v in os.environ.items() if not k.startswith(("ONDOL", "PYTEST_CURRENT", "PYTEST_XDIST")) and "TMP" not in k and "_NUM_THREADS" not in k and "THREADS" not in k}
            found = {"path": sys.path, "cwd": os.getcwd(), "env": keep, "root": str(pytestconfig.rootpath),
                     "args": pytestconfig.args, "name": __name__, "file": __file__, "executable": sys.executable,
                     "prefix": sys.prefix, "stdin": os.readlink("/proc/self/fd/0")}
            with open("found.json", "w") as file: json.dump(found, file, sort_keys=True)
        """,
    )
    assert suite.plain().status == 0
    plain = json.loads((suite.path / "found.json").read_text())
    for start in ("fork", "spawn"):
        (suite.path / "found.json").unlink()
        assert suite.pytest(f"--ondol-start={start}").status == 0
        ours = json.loads((suite.path / "found.json").read_text())
        for key in plain:
            assert ours[key] == plain[key], (start, key)


def test_output_is_seen_once_without_capture(suite) -> None:
    suite.write(
        test_s="""
        import os, sys
        def test_1():
            print("by print"); os.write(1, b"by descriptor\\n"); print("by stderr", file=sys.stderr)
        def test_2():
            os.system("echo by a child"); assert 0
        """
    )
    for run in (
        suite.plain("-s"),
        *(suite.pytest(*ONCE, "-s", f"--ondol-start={start}") for start in ("fork", "spawn")),
    ):
        for text in ("by print", "by descriptor", "by stderr", "by a child"):
            assert sum(line.strip(".F ").endswith(text) for line in run.output.splitlines()) == 1, text
        assert run.status == 1


CLOSES = ["sys.stdout.close()", "os.close(1)", "sys.stdout = None", "sys.__stdout__.close()"]


@pytest.fixture(scope="module")
def closed(new_suite: Callable[[], Suite]) -> tuple[Result, bool]:
    """One after another in the same worker, and whether all have gone."""
    suite = new_suite()
    for number, how in enumerate(CLOSES):
        before = f"import os, pytest, sys\ndef test_before(): print('x')\ndef test_closes(): {how}\n"
        after = "@pytest.mark.parametrize('n', range(4))\ndef test_after(n): print('y')\n"
        suite.write(**{f"test_{number}": before + after})
    return suite.pytest("--ondol-retries=0", devices="cpu:1"), suite.all_gone()


@pytest.mark.parametrize("number", range(len(CLOSES)))
def test_a_test_that_closes_its_output_hurts_nobody_else(closed, number) -> None:
    """Plain pytest may not survive it; here the items before and after must."""
    ours, all_gone = closed
    verdicts = verdicts_of(ours, f"test_{number}")
    verdicts.pop("test_closes")
    assert set(verdicts.values()) == {"passed"}, ours.output
    assert len(verdicts) == 5
    assert all_gone


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_session_fixtures_end_in_every_worker_that_made_them(suite, start) -> None:
    suite.write(
        conftest="""
        import os, pytest
        def log(text):
            fd = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND)
            os.write(fd, f"{text} {os.getpid()}\\n".encode())
            os.close(fd)
        @pytest.fixture(scope="session", autouse=True)
        def s():
            log("up"); yield; log("down")
        """,
        **{f"test_{c}": "def test_1(): pass\ndef test_2(): pass\n" for c in "abcd"},
    )
    ours = suite.pytest(f"--ondol-start={start}", devices="cpu:2")
    ups = sorted(line.split()[1] for line in ours.log if line.startswith("up"))
    downs = sorted(line.split()[1] for line in ours.log if line.startswith("down"))
    assert ups == downs
    assert 1 <= len(ups) <= 2
    assert len(set(ups)) == len(ups)


@pytest.mark.fault
def test_junit_is_well_formed_whatever_was_printed(suite) -> None:
    """Control characters, half a character and an escape sequence, by a pass, a failure and a crash."""
    suite.write(
        test_j="""
        import os
        nasty = bytes(range(256)) + b"\\x1b[31m ]]> <tag> & \\xed\\xa0\\x80"
        def test_pass(): os.write(1, nasty)
        def test_fail():
            os.write(2, nasty)
            assert 0, nasty.decode("latin-1")
        def test_crash():
            os.write(1, nasty)
            os.abort()
        """
    )
    ours = suite.pytest(*ONCE, "--junitxml=out.xml", "-o", "junit_logging=all", devices="cpu:2")
    for text in ((suite.path / "out.xml").read_text(), run_junit.render(ours.record)):
        cases = {case.get("name"): case for case in ElementTree.fromstring(text).iter("testcase")}
        assert set(cases) == {"test_pass", "test_fail", "test_crash"}
        assert not re.search("[\0-\x08\x0b\x0c\x0e-\x1f]", text)
        crash = ElementTree.tostring(cases["test_crash"], encoding="unicode")
        assert "SIGABRT" in crash
        assert "&lt;tag&gt;" in crash, "its output is there"
