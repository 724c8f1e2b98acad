"""Ondol against plain pytest: same outcomes, same fixtures in the same order, same summary of the same suites."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from suites import Result, Suite

pytestmark = pytest.mark.warm_pytest

HELPER = """
    import os, pytest
    def log(text):
        fd = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND)
        os.write(fd, (text + "\\n").encode())
        os.close(fd)
    def maker(scope, name):
        @pytest.fixture(scope=scope, name=name)
        def made():
            log(f"up {name}")
            yield name
            log(f"down {name}")
        return made
    s = maker("session", "s")
    m = maker("module", "m")
    c = maker("class", "c")
    f = maker("function", "f")
"""

CORPUS: dict[str, dict[str, str]] = {
    "scopes": {
        "conftest": "from helper import *",
        "test_a": """
            from helper import log
            def test_1(s, m, f): log("a1")
            class TestC:
                def test_2(self, c, f): log("a2")
                def test_3(self, c, m): log("a3")
            def test_4(f): log("a4")
            """,
        "test_b": """
            from helper import log
            def test_1(m): log("b1")
            def test_2(s, m): log("b2")
            """,
        "sub__conftest": """
            import pytest
            from helper import log
            @pytest.fixture(scope="package", autouse=True)
            def p():
                log("up p"); yield; log("down p")
            """,
        "sub__test_c": """
            from helper import log
            def test_1(): log("c1")
            def test_2(s): log("c2")
            """,
    },
    "parametrize": {
        "conftest": "from helper import *",
        "test_p": """
            import pytest
            from helper import log
            @pytest.fixture(scope="module", params=["x", "y"])
            def wide(request):
                log(f"up {request.param}"); yield request.param; log(f"down {request.param}")
            def test_1(wide): log(f"1 {wide}")
            def test_2(wide): log(f"2 {wide}")
            @pytest.mark.parametrize("n", [1, 2, pytest.param(3, marks=pytest.mark.skip(reason="no")), 4], ids=lambda n: f"n::{n}")
            def test_3(n, f): assert n != 4
            @pytest.mark.parametrize("f", ["a"], indirect=True)
            def test_4(f): pass
            """,
    },
    "outcomes": {
        "test_o": """
            import pytest, warnings
            @pytest.fixture
            def bad_setup(): raise RuntimeError("setup")
            @pytest.fixture
            def bad_teardown():
                yield
                raise RuntimeError("teardown")
            @pytest.fixture(scope="module")
            def bad_module_teardown():
                yield
                raise RuntimeError("module teardown")
            def test_pass(): pass
            def test_fail(): assert [1, 2, 3] == [1, 2, 4]
            def test_setup(bad_setup): pass
            def test_teardown(bad_teardown): pass
            def test_both(bad_teardown): assert 0
            @pytest.mark.xfail
            def test_xfail(): assert 0
            @pytest.mark.xfail
            def test_xpass(): pass
            @pytest.mark.xfail(strict=True)
            def test_strict(): pass
            @pytest.mark.xfail(run=False)
            def test_norun(): assert 0
            @pytest.mark.xfail(raises=KeyError)
            def test_wrong(): raise ValueError
            def test_dynamic_skip(): pytest.skip("now")
            def test_dynamic_xfail(): pytest.xfail("now")
            def test_importorskip(): pytest.importorskip("no_such_module_anywhere")
            @pytest.mark.skipif(True, reason="always")
            def test_skipif(): pass
            def test_warns(): warnings.warn("look", UserWarning)
            def test_exit_is_a_failure():
                import sys; sys.exit(3)
            def test_recursion():
                def f(): f()
                f()
            def test_capture(capsys, capfd=None):
                print("x"); assert capsys.readouterr().out == "x\\n"
            def test_fd(capfd):
                import os; os.write(1, b"y"); assert capfd.readouterr().out == "y"
            def test_tmp(tmp_path): (tmp_path / "f").write_text("1")
            def test_log(caplog):
                import logging; logging.warning("w"); assert "w" in caplog.text
            def test_property(record_property): record_property("k", "v")
            def test_last(bad_module_teardown): pass
            """,
        "test_skipped_module": """
            import pytest
            pytest.skip("all of it", allow_module_level=True)
            """,
    },
    "unittest": {
        "conftest": "from helper import *",
        "test_u": """
            import unittest
            from helper import log
            class Case(unittest.TestCase):
                @classmethod
                def setUpClass(cls): log("up class")
                @classmethod
                def tearDownClass(cls): log("down class")
                def setUp(self): log("up")
                def tearDown(self): log("down")
                def test_1(self): self.addCleanup(log, "cleanup")
                def test_2(self): self.fail("no")
                @unittest.skip("not")
                def test_3(self): pass
                @unittest.expectedFailure
                def test_4(self): self.fail("expected")
                def test_5(self):
                    for n in range(3):
                        with self.subTest(n=n):
                            self.assertNotEqual(n, 1)
            def setUpModule(): log("up module")
            def tearDownModule(): log("down module")
            """,
    },
    "subtests": {
        "test_s": """
            def test_s(subtests):
                for n in range(3):
                    with subtests.test("case", n=n):
                        assert n != 1
            def test_after(subtests):
                with subtests.test("fine"): pass
            """,
    },
    "hooks": {
        "conftest": """
    from helper import *
    def pytest_collection_modifyitems(items):
        mine = [item for item in items if item.path.name == "test_h.py"]
        items[:] = [item for item in items if item not in mine] + mine[::-1]
    def pytest_runtest_setup(item): log(f"hook setup {item.name}")
    def pytest_runtest_teardown(item, nextitem): log(f"hook teardown {item.name} {nextitem and nextitem.name}")
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        if call.when == "call" and "turned" in item.name:
            report.outcome = "passed"
        return report
    def pytest_generate_tests(metafunc):
        if "gen" in metafunc.fixturenames: metafunc.parametrize("gen", [1, 2])
            """,
        "test_h": """
            from helper import log
            def test_1(gen, request): log(f"1 {gen} {request.config.getoption('--mine', 'd')}")
            def test_turned(): assert 0
            def test_3(s): log("3")
            """,
    },
    "async": {
        "test_async": """
            import asyncio, pytest
            @pytest.fixture
            async def value():
                await asyncio.sleep(0)
                yield 7
            @pytest.mark.asyncio
            async def test_1(value): assert value == 7
            @pytest.mark.asyncio
            async def test_2(): assert 0
            """,
    },
}


@pytest.fixture(scope="module")
def corpus(new_suite: Callable[[], Suite]) -> tuple[Suite, Result]:
    """All of it, each in a folder of its own, and what plain pytest says of it."""
    suite = new_suite().write(helper=HELPER)
    suite.plugins.append("asyncio")
    for name, files in CORPUS.items():
        suite.write(**{f"{name}__{file}": text for file, text in files.items()})
    plain = suite.plain()
    assert len(plain.seen) > 100
    return suite, plain


@pytest.fixture(scope="module")
def one_worker(corpus: tuple[Suite, Result]) -> Result:
    return corpus[0].pytest("--ondol-judge=off")


@pytest.mark.parametrize("name", CORPUS)
def test_one_worker_is_plain_pytest(corpus, one_worker, name) -> None:
    plain, ours = ([entry for entry in run.seen if entry[0].startswith(f"{name}/")] for run in (corpus[1], one_worker))
    assert sorted(ours) == sorted(plain)
    assert [entry[0] for entry in ours] == [entry[0] for entry in plain], "another order"


def test_one_worker_runs_hooks_and_fixtures_as_plain_pytest_does(corpus, one_worker) -> None:
    _, plain = corpus
    assert [entry[0] for entry in one_worker.seen] == [entry[0] for entry in plain.seen], "another order"
    assert one_worker.log == plain.log, "fixtures live differently"
    assert one_worker.status == plain.status
    assert one_worker.summary == plain.summary


@pytest.mark.parametrize("flags", [[], ["--ondol-isolate=item"], ["--ondol-start=spawn"], ["--ondol-recycle-after=3"]])
def test_outcomes_do_not_depend_on_how_the_workers_are_made(corpus, flags) -> None:
    suite, plain = corpus
    ours = suite.pytest(*flags, "--ondol-judge=off", devices="cpu:4" if not flags else "cpu:2")
    assert item_outcomes(ours.seen) == item_outcomes(plain.seen), ours.output
    assert ours.status == plain.status
    assert sum(ours.record.counts().values()) == len(ours.record.items)
    assert suite.all_gone()


def item_outcomes(seen: list[list[str]]) -> dict[str, set[tuple[str, ...]]]:
    """Per item; a wider fixture's broken finaliser belongs to whichever item was its last, so that is left out."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for nodeid, when, outcome, kind in seen:
        if when != "teardown" or "teardown]" in nodeid:
            found.setdefault(nodeid, set()).add((when, outcome, kind))
    return found


@pytest.mark.parametrize(
    "flags",
    [["-x"], ["--maxfail=2", "-v"], ["-k", "pass or fail or documented", "--doctest-modules"], ["--co", "-q"]],
)
def test_options_of_pytest_mean_the_same(suite, flags) -> None:
    suite.write(**CORPUS["outcomes"], documented='"""\n>>> 1 + 1\n2\n>>> 1 + 1\n3\n"""\n')
    plain = suite.plain(*flags)
    ours = suite.pytest("--ondol-judge=off", *flags)
    assert ours.outcomes == plain.outcomes
    assert ours.status == plain.status
    assert ours.summary == plain.summary


def test_stopping_at_the_first_failure_leaves_the_rest_not_run(suite) -> None:
    suite.write(test_x="def test_1(): pass\ndef test_2(): assert 0\ndef test_3(): pass\n")
    ours = suite.pytest("-x")
    assert ours.verdicts == {"test_1": "passed", "test_2": "failed", "test_3": "not-run"}
    assert ours.status == 1


def test_no_items_is_never_success(suite) -> None:
    suite.write(test_none="x = 1\n")
    assert suite.pytest().status == suite.plain().status == 5


def test_a_finaliser_that_fails_late_turns_its_item_into_an_error(suite) -> None:
    """With several workers nobody knows which item is a session fixture's last until the run is over."""
    suite.write(
        conftest="import pytest\n@pytest.fixture(scope='session', autouse=True)\ndef s():\n    yield\n    raise RuntimeError('late')\n",
        test_a="def test_1(): pass\ndef test_2(): pass\n",
        test_b="def test_3(): pass\ndef test_4(): pass\n",
    )
    ours = suite.pytest(devices="cpu:2")
    assert ours.status == 1
    assert "late" in ours.output
    assert "error" in ours.verdicts.values()
    assert len(ours.verdicts) == 4


def test_exit_called_by_a_test_stops_the_run_as_in_plain_pytest(suite) -> None:
    suite.write(
        test_e="import pytest\ndef test_1(): pass\ndef test_2(): pytest.exit('enough', 9)\ndef test_3(): pass\n"
    )
    assert suite.pytest().status == suite.plain().status == 9


def test_the_plugin_is_inert_unless_asked_for(suite) -> None:
    suite.write(test_i="import os\ndef test_1(): print('pid', os.getppid(), 'ONDOL_DEVICE' in os.environ)\n")
    plain = suite.plain("-s")
    assert "ondol:" not in plain.output
    assert "journal" not in plain.output
    assert "False" in plain.output


@pytest.mark.plugins("pytest_cov")
def test_junit_and_coverage_of_other_plugins_see_every_item(suite) -> None:
    (suite.path / "code_.py").write_text("def f():\n    return 1\ndef g():\n    return 2\n")
    suite.write(test_j="import code_\ndef test_f(): code_.f()\n", test_k="import code_\ndef test_g(): code_.g()\n")
    ours = suite.pytest("--junitxml=out.xml", "--cov=code_", "--cov-report=term", devices="cpu:2")
    assert 'tests="2"' in (suite.path / "out.xml").read_text()
    assert "ondol_device" in (suite.path / "out.xml").read_text()
    assert re.search(r"code_\.py\s+4\s+0\s+100%", ours.output), ours.output
