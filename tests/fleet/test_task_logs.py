"""A batch's results in files and one table: what each attempt printed is lost, overwritten, or nobody's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from suites import Suite

pytestmark = pytest.mark.warm_pytest

BATCH = """
[[task]]
name = "good"
command = ["sh", "-c", "echo all is well"]
[[task]]
name = "case/bad one"
command = ["sh", "-c", "echo said before; exit 3"]
[[task]]
name = "case:bad one"
command = ["sh", "-c", "kill -SEGV $$"]
[[task]]
name = "hangs"
command = ["sh", "-c", "echo still here; sleep 600"]
timeout = 5
[[task]]
name = "unprepared"
prepare = ["sh", "-c", "echo no compiler; exit 1"]
command = ["true"]
"""


@pytest.fixture
def batch(suite: Suite) -> Suite:
    (suite.path / "b.ondol.toml").write_text(BATCH)
    suite.write(test_ordinary="import os\ndef test_crash():\n    print('on its way', flush=True)\n    os.abort()\n")
    return suite


def logs(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_every_attempt_has_a_file_with_all_that_is_known_of_it(batch: Suite) -> None:
    result = batch.pytest("--ondol-log-dir=logs", "--ondol-grace=0.2", devices="sim:1")
    found = logs(batch.path / "logs")
    attempts = [(item.nodeid, attempt) for item in result.record.items for attempt in item.attempts]
    assert len(found) == len(attempts) == 9, "three failures were judged again, one crash was tried again"
    for nodeid, attempt in attempts:
        mine = [text for text in found.values() if text.startswith(f"{nodeid}\nattempt {attempt.number} ")]
        assert len(mine) == 1
        assert f": {attempt.outcome}" in mine[0].splitlines()[1]
    assert "all is well" in found["b.ondol.toml--good.1.log"]
    assert "on sim0" in found["b.ondol.toml--good.1.log"].splitlines()[1]
    assert "said before" in found["b.ondol.toml--case-bad-one.2.log"]
    assert "exit status 3" in found["b.ondol.toml--case-bad-one.2.log"]
    assert "killed by SIGSEGV" in found["b.ondol.toml--case-bad-one~2.1.log"], (
        "another item, although its name is alike"
    )
    assert "still here" in found["b.ondol.toml--hangs.1.log"]
    assert "no compiler" in found["b.ondol.toml--unprepared.1.log"]
    assert all("on its way" in found[f"test_ordinary.py--test_crash.{n}.log"] for n in (1, 2))


def test_a_directory_that_cannot_be_written_costs_the_logs_and_is_said_once(batch: Suite) -> None:
    (batch.path / "file").write_text("in the way")
    result = batch.pytest("-k", "good or bad", "--ondol-log-dir=file/logs", devices="sim:1")
    assert result.verdicts["good"] == "passed"
    assert result.output.count("--log-dir") == 1


def test_the_summary_has_a_line_for_every_task(batch: Suite) -> None:
    result = batch.pytest("--ondol-grace=0.2", devices="sim:1")
    rows, took = {}, {}
    for line in result.output.splitlines():
        if match := re.match(r"(b\.ondol\.toml::.*?)\s{2,}(\S+)\s+(\S+)\s+(\d+)\s+([\d.]+)\s*(\S*)$", line):
            name, verdict, device, attempts, seconds, code = match.groups()
            rows[name.split("::")[1]] = (verdict, device, int(attempts), code)
            took[name.split("::")[1]] = float(seconds)
    assert rows == {
        "good": ("passed", "sim0", 1, "0"),
        "case/bad one": ("failed", "sim0", 2, "3"),
        "case:bad one": ("failed", "sim0", 2, "-11"),
        "hangs": ("timeout", "sim0", 1, ""),
        "unprepared": ("error", "-", 1, ""),
    }
    assert took["hangs"] > 0, "it was killed at its deadline; a task that passes may be too quick for two digits"
