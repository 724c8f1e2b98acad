"""Items that must stay together are split, or items that need not are bound: both decided without a process."""

from __future__ import annotations

import pytest

from fleet.test_schedule import devices, drain, slots
from ondol.fleet import xdist
from ondol.fleet.model import Slot, SlotState, Work
from ondol.fleet.schedule import build

IDS = ["a.py::test_1", "a.py::T::test_2[x]", "a.py::T::test_3", "b/c.py::test_1", "b/c.py::test_4[p::q]"]


@pytest.mark.parametrize(
    ("dist", "expected"),
    [
        ("no", [0, 1, 2, 3, 4]),
        ("load", [0, 1, 2, 3, 4]),
        ("worksteal", [0, 1, 2, 3, 4]),
        ("loadgroup", [0, 1, 2, 3, 4]),
        ("loadfile", [0, 0, 0, 3, 3]),
        ("loadscope", [0, 1, 1, 3, 4]),
    ],
)
def test_each_way_to_distribute_binds_what_xdist_binds(dist, expected) -> None:
    names = xdist.groups([xdist.ties(nodeid, dist) for nodeid in IDS])
    assert [names.index(name) if name else n for n, name in enumerate(names)] == expected


def test_a_group_that_reaches_into_two_files_binds_them_both() -> None:
    """Each file on one worker, and the group on one worker: then all of it on one."""
    tied = [["group g", "file a"], ["file a"], ["file b"], ["group g", "file b"], ["file c"], []]
    names = xdist.groups(tied)
    assert len(set(names[:4])) == 1
    assert names[4] not in names[:4]
    assert names[5] == ""


def test_a_group_is_never_split_by_who_has_nothing_to_do() -> None:
    works = [Work(n, module=f"m{n % 3}", group="g" if n % 2 else "") for n in range(60)]
    ran = drain(build(works, slots(4), devices(4), depth=8))
    grouped = {slot: [n for n in these if works[n].group] for slot, these in ran.items()}
    assert [these for these in grouped.values() if these] == [list(range(1, 60, 2))]


def test_names_belong_to_slots_and_stay_when_more_join() -> None:
    def known(*names: str) -> dict[str, SlotState]:
        return {name: SlotState(Slot(name, "" if "prepare" in name else name.split(".")[0])) for name in names}

    few, more = known("d0.0", "d0.1", "prepare0"), known("d0.0", "d0.1", "prepare0", "node/d0", "node/prepare0")
    assert [xdist.name(slot, few) for slot in few] == ["gw0", "gw1", "prepare0"]
    assert [xdist.name(slot, more) for slot in more] == ["gw0", "gw1", "prepare0", "gw2", "node/prepare0"]
    assert xdist.name("gang:node/d0+node/d1", more) == "gw2"
    assert xdist.environment("node/d0", more, "u")[xdist.COUNT] == "3"
