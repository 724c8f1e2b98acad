"""The run wing's sabotages, as a pytest plugin: `SABOTAGE` names the one that is done to this run and all it forks."""

# What is replaced must exist; that the replacement is another thing is the point of it.
# mypy: disable-error-code="method-assign, assignment, misc, arg-type, return-value, no-any-return"

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ondol.fleet import (
    hooks_in_workers,
    journal,
    messages,
    pytest_inside,
    quarantine,
    record,
    situation,
    starts,
    verdict,
    wire,
)
from ondol.fleet.agent import agent, keeper
from ondol.fleet.controller import models
from ondol.fleet.worker import hygiene, prepared, worker
from ondol.host import proctree


def no_deadline() -> None:
    """Nobody looks at the clock."""
    keeper.Keeper.overdue = lambda _self, _now: None


def descendants_are_spared() -> None:
    """What a worker leaves behind is nobody's business."""
    proctree.become_subreaper = lambda: False
    proctree.descendants = lambda _pid: []
    agent.Agent._end_orphans = lambda _self: None


def workers_outlive_the_controller() -> None:
    """The agent goes when its controller has gone, and leaves its workers to themselves."""
    proctree.die_with_parent = lambda *_: None
    agent.Agent._end_everything = lambda _self: os._exit(0)


def no_checksum() -> None:
    """Any body is a message, as long as it is JSON."""
    wire._checksum = lambda _data: b"00000000"


def verdicts_are_not_journalled() -> None:
    whole = journal.Journal.write
    journal.Journal.write = lambda self, *events: whole(
        self, *[e for e in events if not isinstance(e, journal.Verdict)]
    )


def nothing_is_judged() -> None:
    """A failure in a dirty process is believed at once."""
    verdict.JudgeRecord.spent = lambda _self, _policy: True


def retried_where_it_crashed() -> None:
    whole = verdict._again

    def again(*arguments: Any) -> object:
        found = whole(*arguments)
        return found and verdict.Again(frozenset())

    verdict._again = again


def poison_is_not_looked_for() -> None:
    worker.Worker._device_fault = lambda _self, _item: None


def one_failure_condemns_a_device() -> None:
    whole = quarantine.Ledger.attempt

    def attempt(self: quarantine.Ledger, work: int, device: str, good: bool) -> list[tuple[str, str]]:
        return whole(self, work, device, good) if good else [(device, "an item failed on it")]

    quarantine.Ledger.attempt = attempt


def dirt_is_not_seen() -> None:
    hygiene.compare = lambda *_, **__: []


def a_lost_result_is_not_missed() -> None:
    """Only what is bad gets its verdict."""
    whole = record.ItemRecord.settle
    record.ItemRecord.settle = lambda self, event: whole(self, event) if verdict.Verdict(event.verdict).bad else None


def sessions_close_while_they_wait() -> None:
    """Only what is at hand now counts."""
    situation.Situation._more_may_come = lambda *_: False


def another_runtime_is_as_good() -> None:
    """A slot takes whatever is ready."""
    real = situation.Situation._pick
    situation.Situation._pick = lambda self, works, _last, state=None: real(self, works, None, state)


def everything_is_taken_for_json() -> None:
    """As it was: what JSON does not know becomes its repr."""
    prepared.pack = lambda _task, value: {"json": json.dumps(value, default=repr)}
    prepared.unpack = lambda _task, packed: json.loads(packed["json"]) if packed else None


def sessions_of_workers_are_not_finished() -> None:
    hooks_in_workers.finish_session = lambda _session, _status, _forked: None


def debuggers_are_let_in() -> None:
    pytest_inside.refuse_debuggers = lambda: None


def what_workers_hand_over_is_dropped() -> None:
    pytest_inside.output_to_wire = lambda _config: ""


def the_file_is_told_less_than_the_record() -> None:
    """Findings that only the process knows which prints them."""
    whole = journal.Journal.write
    journal.Journal.write = lambda self, *events: whole(
        self, *[e._replace(dirt=[]) if isinstance(e, journal.End) else e for e in events]
    )


def every_worker_is_forked() -> None:
    """As if what was collected were good for every device."""
    starts.Place.collects = False


def lists_are_not_compared() -> None:
    """A worker on another model goes on at once."""
    models.listed = lambda event, *_, **__: [messages.Resume(event.slot)]


def pytest_configure() -> None:
    globals()[os.environ["SABOTAGE"]]()
    Path(os.environ["SABOTAGED"]).touch()
