"""`ondol store stats --html`: numbers that are not the store's, names that become markup, a page that nobody can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from ondol.report import store_page
from people import Program
from report_window import MARKUP, Window

LANE = {"name": "u1", "owner": 1, "trusted": True, "entries": 3, "bytes": 10, "quarantined": 1, "half_written": 0}
FACTS = {
    "store": "/ci-cache/ondol",
    "entries": 3,
    "bytes": 10,
    "used_last_week": 2,
    "free_bytes": 1 << 30,
    "file_system": "ext4",
    "tools": [{"tool": "triton", "entries": 3, "bytes": 10}],
    "lanes": [LANE, {**LANE, "name": MARKUP, "trusted": False}],
    "jobs": [
        {"day": f"2026-11-{day:02}", "tool": tool, "hits": day, "misses": 1, "bytes_used": 5, "seconds_saved": 1.25}
        for day in range(1, 31)
        for tool in ("triton", MARKUP)
    ],
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_anybody_can_read_it_and_nothing_in_it_runs(browser: Browser, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "store.html").write_text(store_page.render(FACTS))
    window = Window(browser, color_scheme=scheme)
    window.page.goto(f"file://{tmp_path}/store.html")
    assert window.page.title() == "The store /ci-cache/ondol"
    assert window.page.locator("script, img").count() == 0
    assert MARKUP in window.page.locator("td").all_text_contents()
    assert window.page.locator("svg rect.hits").count() == 30
    assert Axe().run(window.page).response["violations"] == []
    assert window.complaints == []
    assert window.requests == [f"file://{tmp_path}/store.html"]
    window.context.close()


def test_a_day_is_the_sum_of_its_tools() -> None:
    page = store_page.render(FACTS)
    assert "<td>2026-11-30</td><td class=n>60</td><td class=n>2</td><td class=n>97 %</td><td class=n>2.5 s</td>" in page
    assert "no, passed over" in page


def test_a_store_without_jobs_has_a_page() -> None:
    page = store_page.render({**FACTS, "jobs": [], "tools": [], "lanes": []})
    assert "No job has reported anything yet." in page


@pytest.mark.real
def test_the_command_writes_what_the_store_holds(program: Program, store_of_one: Path) -> None:
    page = store_of_one.parent / "store.html"
    done = program.ondol("store", "stats", "--store", str(store_of_one), "--html", str(page))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert re.search(r"<td>triton</td><td class=n>1</td>", page.read_text())


@pytest.fixture
def store_of_one(program: Program, tmp_path: Path) -> Path:
    store = tmp_path / "store"
    program.ondol("store", "init", str(store))
    program.job(store, "a")
    return store
