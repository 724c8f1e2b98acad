"""Each guard of a run on nodes is taken away on purpose, and the test that stands for it turns red."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engines import node_sabotages, test_nodes
from suites import Suite, assert_turns_red

pytestmark = pytest.mark.fault

#: What is taken away, and the test that must notice.
CASES: dict[Callable[[], None], Callable[[Suite], None]] = {
    node_sabotages.nothing_is_compared: test_nodes.test_a_shuffled_collection_is_the_same_collection,
    node_sabotages.silence_is_golden: test_nodes.test_a_silent_node_is_not_waited_for,
    node_sabotages.what_a_lost_node_ran_is_forgotten: test_nodes.test_a_silent_node_is_not_waited_for,
    node_sabotages.gangs_are_spread_over_nodes: test_nodes.test_no_item_gets_devices_of_two_machines,
    node_sabotages.a_notice_is_not_heard: test_nodes.test_a_node_that_is_told_to_go_gets_no_more_work,
    node_sabotages.waiting_has_no_limit: test_nodes.test_a_broker_that_never_gives_a_device_does_not_hold_up_the_run,
}


@pytest.mark.parametrize("sabotage", CASES, ids=lambda sabotage: sabotage.__name__)
def test_without_a_guard_its_test_turns_red(suite: Suite, sabotage: Callable[[], None]) -> None:
    assert_turns_red(suite, CASES[sabotage], sabotage, 20.0, KeyError, ValueError)
