"""The table of tools: what is set for whom, what needs asking for, and whose value wins."""

from __future__ import annotations

import pytest

from ondol import options
from ondol.errors import UsageError
from ondol.tools import registry, table
from ondol.tools.table import BY_NAME, ROWS


def test_no_two_rows_set_one_variable() -> None:
    """The later one would move the earlier one's cache into its own directory."""
    names = [name for row in ROWS for name in (*row.sets, *row.tuning)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_makes_sense(row: table.Row) -> None:
    assert row.sharing in table.SHARING
    assert row.travels or row.note  # a cache that we do not touch needs a word about what to do
    assert all("{cache}" in value or "{" not in value or "{url}" in value for value in row.sets.values())
    assert set(row.reading) <= set(row.sets)
    if row.setting:
        assert row.setting in options.BY_NAME
    if row.travels:
        assert registry.load(row).row is row
        assert row.sets or row.note
    else:
        with pytest.raises(UsageError, match="never copied"):
            registry.load(row)


def test_job_that_asks_for_nothing_does_not_get_what_needs_asking() -> None:
    names = {row.name for row in registry.unasked()}
    assert {"triton", "jax", "tilelang", "cutile"} <= names
    assert not names & {"numba", "uv", "pip", "ccache", "sccache"}
    assert {row.name for row in registry.choose(["auto", "numba"])} == names | {"numba"}


def test_place_that_is_configured_is_used() -> None:
    assert registry.switched_on({"ccache-shared": ""}.__getitem__) == []
    assert registry.switched_on({"ccache-shared": "/x"}.__getitem__) == [BY_NAME["ccache"]]


def test_ccache_is_set_up_by_its_setting_alone() -> None:
    ccache = BY_NAME["ccache"]
    assert not table.plan(ccache, {}, "/room", asked=True).managed
    plan = table.plan(ccache, {}, "/room", asked=False, setting="/a shared|place")
    assert plan.env == {"CCACHE_DIR": "/room", "CCACHE_REMOTE_STORAGE": "file:/a%20shared%7Cplace"}
    reader = table.plan(ccache, {}, "/room", asked=False, setting="/x", publishes=False)
    assert reader.env["CCACHE_REMOTE_STORAGE"] == "file:/x|read-only"


def test_guarded_cache_is_not_moved_into_a_room() -> None:
    for name in ("uv", "pip", "sccache"):
        assert table.plan(BY_NAME[name], {}, "/room", asked=False) == table.ToolPlan(False)
        asked = table.plan(BY_NAME[name], {}, "/room", asked=True)
        assert (asked.managed, asked.env) == (False, {})
        assert asked.remark.startswith(f"{name}: nothing is set")


def test_tool_without_a_variable_is_filled_for_who_asks() -> None:
    assert not table.plan(BY_NAME["cuda-python"], {}, "/room", asked=False).managed
    asked = table.plan(BY_NAME["cuda-python"], {}, "/room", asked=True)
    assert (asked.managed, asked.env) == (True, {})
    assert "/room" in asked.remark


def test_autotuning_is_not_switched_on_for_who_did_not_ask() -> None:
    triton = BY_NAME["triton"]
    assert "TRITON_CACHE_AUTOTUNING" not in table.plan(triton, {}, "/room", asked=True).env
    assert table.plan(triton, {}, "/room", asked=False, tuning=True).env["TRITON_CACHE_AUTOTUNING"] == "1"
    theirs = table.plan(triton, {"TRITON_CACHE_AUTOTUNING": "0"}, "/room", asked=True, tuning=True)
    assert "TRITON_CACHE_AUTOTUNING" not in theirs.env
    assert "TRITON_CACHE_AUTOTUNING=0 is kept" in theirs.remark
