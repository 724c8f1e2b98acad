"""How many points a whole run of these tests strikes; the number is in the summary."""

from __future__ import annotations

import pytest

from faults.crash_points import TALLY

pytestmark = pytest.mark.fault
PROMISED = 2000
#: The modules that strike; they come before this one in the alphabet.
STRIKING = {"test_kill_points", "test_error_points", "test_job_points", "test_strace"}


def test_two_thousand_points_were_struck(request: pytest.FixtureRequest) -> None:
    """The promise of the summary line: at least two thousand calls were killed or failed in this run."""
    ran = {item.path.stem for item in request.session.items}
    if not ran >= STRIKING or request.config.option.keyword:
        pytest.skip("only a part of the tests is running")

    assert sum(TALLY.values()) >= PROMISED
