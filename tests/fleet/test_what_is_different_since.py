"""A red run hides what is new among what was red before: two runs are compared, each item once."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fleet.test_past_runs_are_lost import ondol, write_run
from ondol.fleet.past import Outcome, PastRun
from ondol.fleet.verdict import Verdict
from ondol.report.compare import compare, lines

OUTCOMES = st.builds(
    Outcome, st.sampled_from([v.value for v in Verdict]), st.booleans(), st.floats(0, 100), st.booleans()
)
ITEMS = st.dictionaries(st.sampled_from([f"t{n}" for n in range(8)]), OUTCOMES)


def run(items: dict[str, Outcome], compiled: int | None = None) -> PastRun:
    return PastRun("r", 0.0, 0.0, 0, "", "", compiled, None, items)


@given(ITEMS, ITEMS)
def test_every_failure_is_new_or_known_and_nothing_else_is(
    before: dict[str, Outcome], after: dict[str, Outcome]
) -> None:
    found = compare(run(before), run(after))
    failed = {nodeid for nodeid, one in after.items() if one.failed}
    assert sorted([*found.new_failures, *found.known_failures]) == sorted(failed)
    assert set(found.fixed).isdisjoint(failed)
    assert all(before[nodeid].failed and not after[nodeid].unknown for nodeid in found.fixed)
    assert set(found.added) == set(after) - set(before)
    assert set(found.gone) == set(before) - set(after)
    assert list(lines(found))


def test_slower_is_more_than_noise_and_colder_is_counted() -> None:
    before = {"a": Outcome("passed", seconds=1.0), "b": Outcome("passed", seconds=0.01), "c": Outcome("passed")}
    after = {
        "a": Outcome("passed", seconds=3.0),
        "b": Outcome("passed", seconds=0.09),
        "c": Outcome("failed", seconds=9.0),
    }
    found = compare(run(before, 2), run(after, 7))
    assert found.slower == [("a", 1.0, 3.0)]
    assert found.colder == (2, 7)
    assert compare(run(before, 2), run(after)).colder is None


def test_report_compare_tells_what_is_new_and_its_status_says_so(tmp_path: Path) -> None:
    old = write_run(tmp_path / "old.jsonl", "failed", "failed", "passed")
    new = write_run(tmp_path / "new.jsonl", "failed", "passed", "crashed", "passed")
    told = ondol(tmp_path, "report", "--compare", str(old), str(new))
    assert told.returncode == 1
    assert told.stdout.splitlines() == [
        "1 new failure, 1 still fails, 1 fixed, 0 slower, 1 added, 0 gone",
        "new failure: t.py::test_2",
        "still fails: t.py::test_0",
        "fixed: t.py::test_1",
        "added: t.py::test_3",
    ]
    assert ondol(tmp_path, "report", "--compare", str(old), str(old)).returncode == 0
    found = json.loads(ondol(tmp_path, "report", "--compare", str(old), str(new), "--json", "-").stdout)
    assert (found["format"], found["new_failures"]) == ("ondol-compare/1", ["t.py::test_2"])


def test_one_journal_or_two_but_not_three(tmp_path: Path) -> None:
    one = str(write_run(tmp_path / "j.jsonl", "passed"))
    for words in (["report"], ["report", one, "--compare", one, one]):
        told = ondol(tmp_path, *words)
        assert told.returncode == 2
        assert "--compare" in told.stderr
