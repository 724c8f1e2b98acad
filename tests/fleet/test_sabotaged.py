"""Each guard of the run wing is taken away on purpose, and the test that stands for it turns red."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from fleet import (
    sabotages,
    test_closed_while_waiting,
    test_devices_of_different_models,
    test_judging,
    test_kept_in_the_process,
    test_kills,
    test_live_is_replayed,
    test_misbehaviour,
    test_parity,
    test_schedule,
    test_what_prepare_returns,
    test_wire,
)
from ondol.fleet import situation, wire
from suites import assert_turns_red

pytestmark = pytest.mark.fault

#: What is taken away, and the test that must notice.
CASES: dict[Callable[[], None], Callable[..., None]] = {
    sabotages.no_deadline: test_misbehaviour.test_a_teardown_that_hangs_has_a_deadline_of_its_own,
    sabotages.descendants_are_spared: test_misbehaviour.test_what_a_dead_worker_left_is_ended_before_the_next_item_runs,
    sabotages.workers_outlive_the_controller: test_kills.test_a_killed_pytest_without_a_front_leaves_no_worker_behind,
    sabotages.verdicts_are_not_journalled: test_judging.test_a_crash_is_tried_again_on_another_device_and_stays_visible,
    sabotages.nothing_is_judged: test_judging.test_a_failure_that_needs_a_dirty_process_is_flaky_and_named,
    sabotages.retried_where_it_crashed: test_judging.test_a_crash_is_tried_again_on_another_device_and_stays_visible,
    sabotages.poison_is_not_looked_for: test_judging.test_poison_is_found_although_the_item_passed,
    sabotages.one_failure_condemns_a_device: test_judging.test_one_deterministic_failure_burns_no_device,
    sabotages.dirt_is_not_seen: test_judging.test_every_kind_of_dirt_is_named_against_the_item_that_made_it,
    sabotages.sessions_close_while_they_wait: test_closed_while_waiting.test_a_worker_waits_for_its_runtime_although_another_ones_task_is_ready,
    sabotages.everything_is_taken_for_json: test_what_prepare_returns.test_what_cannot_travel_is_an_error_that_names_the_task_and_the_type,
    sabotages.sessions_of_workers_are_not_finished: test_kept_in_the_process.test_the_hook_of_a_worker_is_told_whether_its_items_failed,
    sabotages.debuggers_are_let_in: partial(
        test_kept_in_the_process.test_a_breakpoint_says_what_to_type_instead_of_hanging, flags=[]
    ),
    sabotages.what_workers_hand_over_is_dropped: partial(
        test_kept_in_the_process.test_what_a_conftest_hands_over_as_xdist_has_it_comes_home, start="fork"
    ),
    sabotages.the_file_is_told_less_than_the_record: test_live_is_replayed.test_what_was_left_behind_is_told_again,
    sabotages.every_worker_is_forked: partial(
        test_devices_of_different_models.test_each_device_collects_and_skips_by_its_own_facts,
        spec="cuda:0,1",
        start="auto",
    ),
    sabotages.lists_are_not_compared: partial(
        test_devices_of_different_models.test_what_only_one_model_collects_runs_there_or_is_named, start="auto"
    ),
    sabotages.a_lost_result_is_not_missed: test_parity.test_stopping_at_the_first_failure_leaves_the_rest_not_run,
}


@pytest.mark.parametrize("sabotage", CASES, ids=lambda sabotage: sabotage.__name__)
def test_without_a_guard_its_test_turns_red(suite, sabotage: Callable[[], None]) -> None:
    test = CASES[sabotage]
    whole = test.func if isinstance(test, partial) else test
    # With the plugins that it has when it is green.
    marks = [mark for mark in getattr(whole, "pytestmark", []) if mark.name == "plugins"]
    suite.plugins += [name for mark in marks for name in mark.args]
    assert_turns_red(suite, test, sabotage, 20.0)


def test_without_the_preference_for_the_open_runtime_its_test_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the scheduler alone: in a whole run it depends on which of two preparations is done first."""
    monkeypatch.setattr(situation.Situation, "_pick", situation.Situation._pick)  # put back at the end
    sabotages.another_runtime_is_as_good()
    with pytest.raises(AssertionError):
        test_schedule.test_a_worker_waits_for_its_runtime_and_not_with_another()


def test_without_the_wires_checksum_its_test_turns_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_checksum", wire._checksum)  # put back at the end
    sabotages.no_checksum()
    with pytest.raises((AssertionError, ValueError)):
        test_wire.test_a_frame_that_was_written_into_is_skipped_and_the_next_one_found()
