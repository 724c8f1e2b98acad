"""Requests and habits that ended in a hang, a traceback or a result told twice: each is obeyed or refused in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from fleet.test_coming_from_xdist import beside

pytestmark = pytest.mark.warm_pytest

ONE = "def test_1(): open('ran', 'a').write('x')\n"


def refused(suite, result, *words: str) -> None:
    assert result.status in {2, 4}, result.output
    assert "Traceback" not in result.output
    assert "INTERNALERROR" not in result.output
    for word in words:
        assert word in result.output, result.output
    assert not (suite.path / "ran").exists()


@pytest.mark.parametrize("flag", ["workers-per-device=0", "retries=-1", "timeout=-3", "timeout=soon", "grace=nan"])
def test_numbers_that_mean_nothing_are_refused(suite, flag) -> None:
    """No worker per device: the run waited for ever."""
    suite.write(test_a=ONE)
    name, _, value = flag.partition("=")
    refused(suite, suite.pytest(f"--ondol-{flag}"), f"--ondol-{name}", value)
    refused(suite, suite.ondol(f"--{flag}"), f"--{name}", value)


def test_an_option_of_ours_without_devices_is_refused_and_not_ignored(suite) -> None:
    suite.write(test_a=ONE)
    refused(suite, suite.plain("--ondol-timeout=5"), "--ondol-timeout=5", "--ondol-devices=auto")


def test_the_ini_file_holds_defaults_for_the_runs_that_ask_for_us(suite) -> None:
    suite.write(
        test_a="import time\ndef test_slow(): time.sleep(60)\ndef test_who(worker_id): assert worker_id == 'gw0'\n"
    )
    settings = "ondol_devices = sim:1\nondol_timeout = 5\nondol_grace = 0.1\nondol_retry_on = crashed\n"
    (suite.path / "pytest.ini").write_text(f"[pytest]\naddopts = -p no:cacheprovider\n{settings}")
    journal = suite.path / "journal.jsonl"
    result = suite._run([sys.executable, "-m", "ondol", "test", "-p", "recorder", f"--journal={journal}"], journal)
    assert result.verdicts == {"test_slow": "timeout", "test_who": "passed"}, result.output
    (suite.path / "pytest.ini").write_text("[pytest]\nondol_devices = sim:1\nondol_flaky = perhaps\n")
    bad = suite.plain()
    assert bad.status == 4
    assert "ondol_flaky" in bad.output
    assert "'perhaps'" in bad.output


@pytest.mark.parametrize("path", ["/proc/j", "/dev/null/j"])
def test_a_journal_that_cannot_be_written_is_refused(suite, path) -> None:
    suite.write(test_a=ONE)
    refused(suite, suite.pytest(f"--ondol-journal={path}"), "--journal", path)
    refused(suite, suite.ondol(f"--journal={path}"), "--journal", path)


def test_pytest_can_be_called_in_a_thread(suite) -> None:
    suite.write(
        test_a="def test_1(): pass\ndef test_2(): assert 0\n",
        program="""
        import pytest, threading
        def run(): print("status", int(pytest.main(["-q", "--ondol-devices=cpu:1", "--ondol-judge=off"])))
        thread = threading.Thread(target=run); thread.start(); thread.join()
        """,
    )
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=suite.path, env=suite.environment(), capture_output=True, text=True
    )
    assert "status 1" in done.stdout, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout


def test_stepwise_stops_where_plain_pytest_stops_with_two_workers(suite) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\n")
    suite.write(
        test_a="def test_1(): pass\ndef test_2(): assert 0\ndef test_3(): pass\n", test_b="def test_4(): assert 0\n"
    )
    for _ in range(2):
        plain = suite.plain("-o", "cache_dir=plain", "--sw")
        ours = suite.pytest("-o", "cache_dir=ours", "--sw", "--ondol-judge=off", devices="cpu:2")
        assert ours.outcomes == plain.outcomes
        assert ours.summary == plain.summary


def test_stepwise_runs_a_crashed_item_again_where_its_only_worker_is(suite) -> None:
    """It is to avoid the device on which it crashed; the other one has no worker, and it waited there for ever."""
    suite.write(
        test_a="""
        import os, pathlib
        def test_1():
            mark = pathlib.Path("crashed")
            if not mark.exists():
                mark.touch()
                os.abort()
        def test_2(): pass
        """
    )
    result = suite.pytest("--sw", "--ondol-retries=1", devices="cpu:2")
    assert result.verdicts == {"test_1": "passed", "test_2": "passed"}, result.output


def test_the_name_that_two_plugins_share_is_refused_with_both_ways_to_say_it(suite) -> None:
    beside(suite, "retry", "pytest-retry").write(test_a=ONE)
    refused(suite, suite.ondol("--retries", "2"), "pytest-retry", "--ondol-retries", "-o retries=")
    assert suite.ondol("--ondol-retries=2").status == 0
    assert suite.ondol("-o", "retries=2").status == 0


def test_annotations_are_written_once(suite) -> None:
    """The plugin stays away from xdist's workers; in ours it had been registered before they were forked."""
    beside(suite, "annotate", "pytest_github_actions_annotate_failures").write(
        test_a="def test_1(): assert 0, 'once'\n"
    )
    suite.variables["GITHUB_ACTIONS"] = "true"
    result = suite.pytest("--ondol-judge=off", devices="cpu:2")
    assert len(re.findall(r"::error .*test_1%0A%0AAssertionError: once", result.output)) == 1, result.output


@pytest.mark.plugins("timeout")
@pytest.mark.parametrize("how", ["@pytest.mark.timeout(5, method='thread')", "ini"])
def test_the_thread_of_pytest_timeout_does_not_end_the_worker(suite, how) -> None:
    """It ends the process, which looked like a crash and was tried again."""
    if how == "ini":
        (suite.path / "pytest.ini").write_text("[pytest]\ntimeout = 5\ntimeout_method = thread\n")
        how = ""
    suite.write(test_a=f"import pytest, time\n{how}\ndef test_slow(): time.sleep(60)\ndef test_after(): pass\n")
    result = suite.pytest("--ondol-grace=0.2")
    assert result.verdicts == {"test_slow": "timeout", "test_after": "passed"}, result.output
    (slow,) = [item for item in result.record.items if item.verdict == "timeout"]
    assert len(slow.attempts) == 1
    assert "in test_slow" in slow.attempts[0].dump


@pytest.mark.fault
def test_an_item_that_breaks_its_worker_is_shown_once(suite) -> None:
    """Nothing can be opened any more: the call fails, its teardown fails, and then the worker is gone."""
    suite.write(
        test_a="import resource\ndef test_1(): pass\ndef test_low(): resource.setrlimit(resource.RLIMIT_NOFILE, (1, 1))\ndef test_2(): pass\n"
    )
    result = suite.pytest("--ondol-retries=0", "--ondol-judge=off")
    assert result.verdicts == {"test_1": "passed", "test_low": "crashed", "test_2": "passed"}, result.output
    assert len([entry for entry in result.seen if entry[0].endswith("test_low") and entry[2] == "failed"]) == 1
    assert "Bad file descriptor" in result.output, "what failed before the end is still told"


def test_a_failure_of_fifty_megabytes_is_shortened_on_its_way(suite) -> None:
    suite.write(test_a="def test_big(): assert 0, 'begin' + 'x' * 50_000_000 + 'end'\n")
    result = suite.pytest("--ondol-judge=off", "--tb=long")
    assert result.verdicts == {"test_big": "failed"}
    assert len(result.output) < 20_000_000
    assert "characters left out" in result.output
    assert "begin" in result.output


def test_allure_has_what_no_worker_could_report(suite) -> None:
    beside(suite, "allure", "allure_pytest").write(
        test_a="""
        import os, time
        def test_pass(): pass
        def test_crash(): os.abort()
        def test_hang(): time.sleep(600)
        """
    )
    result = suite.pytest(
        "--alluredir=out", "--ondol-retries=0", "--ondol-timeout=10", "--ondol-grace=0.1", devices="cpu:2"
    )
    found = [json.loads(path.read_text()) for path in (suite.path / "out").glob("*-result.json")]
    told = {one["name"]: (one["status"], one.get("statusDetails", {}).get("message", "")) for one in found}
    assert told["test_pass"][0] == "passed", result.output
    assert told["test_crash"][0] == "broken"
    assert "SIGABRT" in told["test_crash"][1]
    assert told["test_hang"][0] == "broken"
    assert "took longer than 10 s" in told["test_hang"][1]
    assert len(found) == 3
