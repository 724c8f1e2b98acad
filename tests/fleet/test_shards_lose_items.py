"""A suite is divided among machines and an item is in no part, or all the long ones are in one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handmade import present
from ondol.errors import UsageError
from ondol.fleet import journal, kept, past, selection

pytestmark = pytest.mark.warm_pytest

IDS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=60, unique=True).map(
    lambda pairs: [f"t{file}.py::test_{n}" for file, n in pairs]
)
SECONDS = st.dictionaries(st.integers(0, 30), st.floats(0, 1e6))


@given(IDS, SECONDS, st.integers(1, 9), st.randoms())
def test_every_item_is_in_exactly_one_part_whatever_their_order(ids, known, parts, random) -> None:
    seconds = {nodeid: known[n] for nodeid in ids if (n := int(nodeid.rpartition("_")[2])) in known}
    found = [selection.part(ids, seconds, number, parts) for number in range(1, parts + 1)]
    assert sorted(place for one in found for place in one.places) == list(range(len(ids)))
    shuffled = list(ids)
    random.shuffle(shuffled)
    again = [selection.part(shuffled, seconds, number, parts) for number in range(1, parts + 1)]
    assert [{ids[p] for p in one.places} for one in found] == [{shuffled[p] for p in one.places} for one in again]
    assert len({one.plan for one in (*found, *again)}) == 1


@given(IDS, SECONDS, st.integers(1, 9))
def test_no_part_has_more_than_its_share_and_one_piece(ids, known, parts) -> None:
    seconds = {nodeid: known[n] for nodeid in ids if (n := int(nodeid.rpartition("_")[2])) in known}
    found = [selection.part(ids, seconds, number, parts) for number in range(1, parts + 1)]
    share = found[0].total / parts
    longest = max([share, *seconds.values(), 1.0])
    assert all(one.weight <= (share + longest) * (1 + 1e-6) for one in found)


def test_without_durations_files_stay_together_and_counts_are_alike() -> None:
    ids = [f"t{file}.py::test_{n}" for file in range(4) for n in range(10)]
    for number in (1, 2):
        one = selection.part(ids, {}, number, 2)
        assert len(one.places) == 20
        assert len({ids[place].split("::")[0] for place in one.places}) == 2


def test_items_that_take_no_time_are_not_all_in_one_part() -> None:
    ids = [f"t{file}.py::test" for file in range(10)]
    assert [len(selection.part(ids, dict.fromkeys(ids, 0.0), n, 5).places) for n in range(1, 6)] == [2] * 5


@pytest.mark.parametrize("text", ["", "0/5", "6/5", "1/0", "a/b", "1", "1/2/3", "²/5", "-1/5", "1 / 2"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard"):
        selection.parse_shard(text)


def test_a_bad_shard_runs_nothing(suite) -> None:
    suite.write(test_a="def test_1(): open('ran', 'w')\n")
    result = suite.pytest("--ondol-shard=3/2")
    assert result.status == 4
    assert "--shard 2/5" in result.output
    assert not (suite.path / "ran").exists()


# ---------------------------------------------------------------------- with a history


def git(path: Path, *words: str, time: int) -> None:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    env = {**os.environ, **who, "GIT_COMMITTER_DATE": f"@{time} +0000", "GIT_AUTHOR_DATE": f"@{time} +0000"}
    subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=path, env=env, check=True, capture_output=True)


def write_past(where: Path, began: int, seconds: dict[str, float]) -> None:
    where.mkdir(exist_ok=True)
    run = past.PastRun("", began, 1.0, 0, "h", "/", None, None, {k: past.Outcome("passed", seconds=v) for k, v in seconds.items()})  # fmt: skip
    path = where / f"20200101-{began:010d}-0123456789ab{journal.KEPT}"
    path.write_bytes(journal.pack_kept(past.to_line(run), b"{}\n"))
    path.chmod(0o644)


def test_runs_that_end_while_the_shards_start_change_no_part(suite, tmp_path: Path) -> None:
    """Shard 1 is over, and in the history, before shard 2 has begun: both must divide by the same durations."""
    names = ["test_a", "test_b", "test_c", "test_d"]
    suite.write(**dict.fromkeys(names, "def test_1(): pass\n"))
    git(suite.path, "init", time=1000)
    git(suite.path, "commit", "--allow-empty", "-m", "x", time=1000)
    ids = [f"{name}.py::test_1" for name in names]
    write_past(tmp_path / "h", 500, dict(zip(ids, [90.0, 10.0, 10.0, 10.0], strict=True)))
    history = f"--ondol-history={tmp_path / 'h'}"
    first = suite.pytest("--ondol-shard=1/2", history)
    assert len(kept.runs(str(tmp_path / "h"))[0]) == 2
    write_past(tmp_path / "h", 999_999, dict(zip(ids, [1.0, 500.0, 1.0, 1.0], strict=True)))
    second = suite.pytest("--ondol-shard=2/2", history)
    parts = [[item.nodeid for item in result.record.items] for result in (first, second)]
    assert parts == [ids[:1], ids[1:]]
    told = [present(re.search(r"shard ./2: . of 4 items, (.*?), by the durations of 1 run before", r.output))[1] for r in (first, second)]  # fmt: skip
    assert told == ["90.0 s of 2.0 min", "30.0 s of 2.0 min"]
    assert len({present(re.search(r"plan (\w{8})", result.output))[1] for result in (first, second)}) == 1


def test_ones_own_history_which_other_machines_do_not_have_divides_nothing(suite) -> None:
    suite.write(test_a="def test_1(): pass\n", test_b="def test_2(): pass\n")
    suite.pytest()
    result = suite.pytest("--ondol-shard=2/2")
    assert "by count (--history DIR" in result.output
    assert result.verdicts == {"test_2": "passed"}
