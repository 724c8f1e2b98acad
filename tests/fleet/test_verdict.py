"""Judging: which attempts add up to what, and who is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondol import exitcodes
from ondol.fleet import journal
from ondol.fleet.outcome import is_device_fault
from ondol.fleet.quarantine import STARTING, Ledger
from ondol.fleet.record import RunRecord
from ondol.fleet.verdict import Again, Attempt, Cause, Final, JudgeRecord, Policy, Verdict, judge, note_judgement
from ondol.pytest_runner import exit_status
from ondol.report import run_summary

PASSED = Attempt(Verdict.PASSED, device="d1")
FAILED_WARM = Attempt(Verdict.FAILED, Cause.FAILED, warm=True, device="d0")
FAILED_FRESH = Attempt(Verdict.FAILED, Cause.FAILED, device="d0")
CRASHED = Attempt(Verdict.CRASHED, Cause.CRASHED, device="d0", reason="SIGSEGV")
TIMEOUT = Attempt(Verdict.TIMEOUT, Cause.TIMEOUT, device="d0")


def decide(*attempts: Attempt, policy: Policy | None = None) -> Again | Final:
    return judge(attempts, policy or Policy(), JudgeRecord())


def test_a_failure_in_a_fresh_worker_is_final() -> None:
    assert decide(FAILED_FRESH) == Final(Verdict.FAILED)


def test_a_failure_in_a_warm_worker_is_judged_once_more() -> None:
    assert isinstance(decide(FAILED_WARM), Again)
    assert decide(FAILED_WARM, FAILED_FRESH) == Final(Verdict.FAILED)


def test_passing_when_judged_is_flaky_and_names_the_suspicion() -> None:
    final = decide(FAILED_WARM, PASSED)
    assert isinstance(final, Final)
    assert final.flaky
    assert "state-leak suspect" in final.why


def test_a_crash_is_tried_again_away_from_its_device() -> None:
    again = decide(CRASHED)
    assert isinstance(again, Again)
    assert again.avoid == {"d0"}
    assert decide(CRASHED, CRASHED) == Final(Verdict.CRASHED, why="SIGSEGV")


def test_a_timeout_is_not_tried_again_unless_asked() -> None:
    assert decide(TIMEOUT) == Final(Verdict.TIMEOUT)
    asked = Policy(retry_on=frozenset({Cause.TIMEOUT}))
    assert isinstance(decide(TIMEOUT, policy=asked), Again)


def test_a_crash_stays_visible_when_the_second_attempt_passes() -> None:
    final = decide(CRASHED, PASSED)
    assert isinstance(final, Final)
    assert final.flaky
    assert "crashed on attempt 1" in final.why


def test_an_item_whose_device_is_taken_moves_once() -> None:
    taken = Attempt(Verdict.DEVICE_LOST, Cause.DEVICE, device="d0")
    again = decide(taken)
    assert isinstance(again, Again)
    assert again.avoid == {"d0"}
    assert decide(taken, Attempt(Verdict.DEVICE_LOST, Cause.DEVICE, device="d1")) == Final(Verdict.DEVICE_LOST)


def test_a_device_that_is_taken_costs_the_item_no_second_chance() -> None:
    taken = Attempt(Verdict.DEVICE_LOST, Cause.DEVICE, device="d1")
    assert isinstance(decide(taken, CRASHED), Again)
    assert decide(taken, CRASHED, CRASHED) == Final(Verdict.CRASHED, why="SIGSEGV")
    assert isinstance(decide(taken, FAILED_WARM), Again)
    attempts, record = [taken, FAILED_WARM, FAILED_FRESH], JudgeRecord()
    assert decide(*attempts) == Final(Verdict.FAILED)
    note_judgement(attempts, Final(Verdict.FAILED), record)
    assert record.confirmed == 1


def test_a_red_suite_is_not_run_twice_over() -> None:
    record = JudgeRecord()
    for _ in range(Policy().judge_limit):
        note_judgement([FAILED_WARM, FAILED_FRESH], Final(Verdict.FAILED), record)
    assert judge([FAILED_WARM], Policy(), record) == Final(Verdict.FAILED)


ATTEMPTS = st.builds(
    Attempt,
    outcome=st.sampled_from(Verdict),
    cause=st.sampled_from(Cause),
    warm=st.booleans(),
    device=st.sampled_from(["", "d0", "d1"]),
)


@given(st.lists(ATTEMPTS, min_size=1, max_size=6), st.integers(0, 3), st.booleans())
def test_judging_always_ends_and_never_hides_a_bad_attempt(attempts: list[Attempt], retries: int, on: bool) -> None:
    policy = Policy(retries=retries, retry_on=frozenset(Cause), judge=on)
    decision = judge(attempts, policy, JudgeRecord())
    if isinstance(decision, Again):
        lost = [a for a in attempts if a.outcome is Verdict.DEVICE_LOST]
        assert len(attempts) - len(lost) <= max(retries, 1)
        assert attempts[-1].outcome is not Verdict.DEVICE_LOST or len(lost) == 1
    else:
        assert decision.verdict is attempts[-1].outcome
        if attempts[-1].good and any(not a.good for a in attempts[:-1]):
            assert decision.flaky


def test_a_missing_verdict_is_noticed() -> None:
    record = RunRecord()
    record.apply(journal.Planned(["test_1", "test_2"]), 1.0)
    record.apply(journal.Verdict(0, "passed", False, ""), 2.0)
    assert exit_status(0, record) == pytest.ExitCode.INTERNAL_ERROR
    assert "error: 2 items were planned and 1 have a verdict" in run_summary.lines(record, Path("j"))
    record.apply(journal.Verdict(1, "not-run", False, ""), 3.0)
    assert exit_status(0, record) == exitcodes.INCOMPLETE


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", True),
        ("aclrtSynchronizeStream failed, error code: 507018", True),
        ("level_zero backend failed with error: UR_RESULT_ERROR_DEVICE_LOST", True),
        ("AssertionError: assert 507018 == 1", False),
        ("AssertionError: illegal memory access expected in message", False),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory", False),
    ],
)
def test_device_faults_are_read_from_what_the_runtimes_say(text: str, is_one: bool) -> None:
    assert is_device_fault(text) is is_one


def test_one_deterministic_failure_never_condemns_a_device() -> None:
    ledger = Ledger()
    for device in ("d0", "d1", "d2", "d3"):
        assert ledger.attempt(7, device, good=False) == []


def test_different_items_that_pass_elsewhere_condemn_it() -> None:
    ledger = Ledger(evidence_needed=3)
    for work in range(3):
        ledger.attempt(work, "d0", good=False)
        condemned = ledger.attempt(work, "d1", good=True)
    ((device, why),) = condemned
    assert device == "d0"
    assert ledger.witnesses["d0"] == [0, 1, 2]
    assert "3 different items" in why


def test_the_same_item_counts_once() -> None:
    ledger = Ledger(evidence_needed=2)
    for _ in range(5):
        ledger.attempt(1, "d0", good=False)
        assert ledger.attempt(1, "d1", good=True) == []


def test_starts_that_fail_in_a_row_condemn_and_a_good_one_forgives() -> None:
    ledger = Ledger()
    assert ledger.failed(STARTING, "d0", "no context") == ""
    ledger.worked(STARTING, "d0")
    assert ledger.failed(STARTING, "d0", "no context") == ""
    assert "2 times in a row: no context" in ledger.failed(STARTING, "d0", "no context")
