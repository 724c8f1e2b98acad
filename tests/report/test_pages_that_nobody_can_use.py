"""The page of a run, in a real browser: what people click, type, link to and print does what it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import axe_playwright_python
import pytest
from playwright.sync_api import Page, expect

from ondol.fleet import journal, messages
from ondol.fleet.record import Book, load
from ondol.report import run_page
from report_window import Window
from suites import Result, Suite

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
NAME = "test_ops.py::"


def rows(page: Page) -> list[str]:
    return page.locator("#list tbody tr[aria-rowindex] button").all_text_contents()


def shown(page: Page) -> tuple[float, float]:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found = page.locator("#timeline").evaluate("(canvas) => [canvas.dataset.from, canvas.dataset.to]")
    return float(found[0]), float(found[1])


# ---------------------------------------------------------------------- filter


def test_filter_shows_what_was_typed_and_counts_it(page: Page, ran: Result) -> None:
    flaky = [item.nodeid for item in ran.record.items if item.flaky]
    assert f"{NAME}test_dies_once" in flaky
    total = len(ran.record.items)
    expect(page.locator("#count")).to_have_text(f"{total} of {total}")
    page.fill("#filter", "GOOD -[3]")
    assert rows(page) == [f"{NAME}test_good[{n}]" for n in (0, 1, 2, 4, 5)]
    expect(page.locator("#count")).to_have_text(f"5 of {total}")
    page.fill("#filter", "no such test")
    assert rows(page) == []
    page.fill("#filter", "")
    page.select_option("#verdict", "crashed")
    assert rows(page) == [f"{NAME}test_crash"]
    page.select_option("#verdict", "flaky")
    assert rows(page) == flaky


def test_a_verdict_in_the_head_leads_to_its_tests(page: Page) -> None:
    page.get_by_role("button", name="timeout 1").click()
    assert rows(page) == [f"{NAME}test_hang"]
    expect(page.locator("#items-title")).to_be_focused()


def test_worst_first_begins_with_what_failed(page: Page) -> None:
    page.select_option("#order", "bad")
    first = page.locator("#list tbody tr[aria-rowindex]").first
    expect(first).to_contain_text("failed")


# ---------------------------------------------------------------------- timeline


def test_zooming_changes_what_is_shown_and_all_brings_it_back(page: Page) -> None:
    whole = shown(page)
    assert whole[0] == 0
    page.click("#zoom-in")
    page.click("#zoom-in")
    begin, end = shown(page)
    assert end - begin == pytest.approx((whole[1] - whole[0]) / 4, rel=0.01)
    page.focus("#timeline")
    page.keyboard.press("-")
    assert shown(page)[1] - shown(page)[0] == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    page.keyboard.press("0")
    assert shown(page) == whole


def test_dragging_moves_the_part_that_is_shown(page: Page) -> None:
    page.click("#zoom-in")
    before = shown(page)
    frame = page.locator("#timeline").bounding_box()
    assert frame is not None
    page.mouse.move(frame["x"] + 600, frame["y"] + 40)
    page.mouse.down()
    page.mouse.move(frame["x"] + 500, frame["y"] + 40, steps=4)
    page.mouse.up()
    after = shown(page)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], rel=0.01)
    expect(page.locator("#detail")).to_be_hidden()


def find_bar(page: Page, name: str) -> None:
    """Move the mouse along the lanes until the bar of this test is under it."""
    page.locator("#timeline").scroll_into_view_if_needed()
    frame = page.locator("#timeline").bounding_box()
    assert frame is not None
    for y in (52, 84):
        for x in range(60, int(frame["width"]), 12):
            page.mouse.move(frame["x"] + x, frame["y"] + y)
            if name in (page.locator("#tip").text_content() or ""):
                return
    raise AssertionError(f"no bar of {name}")


def test_a_bar_tells_what_it_is_and_leads_to_its_test(page: Page) -> None:
    find_bar(page, "test_hang")
    expect(page.locator("#tip")).to_be_visible()
    expect(page.locator("#tip")).to_contain_text("timeout, attempt 1")
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#detail-title")).to_have_text(f"{NAME}test_hang")


def test_the_timeline_can_be_walked_without_a_mouse(page: Page) -> None:
    page.focus("#timeline")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#chosen")).to_contain_text("attempt 1")
    first = page.locator("#chosen").text_content()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#chosen")).not_to_have_text(first or "")
    page.keyboard.press("Enter")
    expect(page.locator("#detail")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    expect(page.locator("#timeline")).to_be_focused()


def test_the_reasons_stand_above_the_timeline(page: Page) -> None:
    told = page.locator("#reasons li").all_text_contents()
    assert 1 <= len(told) <= 3
    assert all(told)


# ---------------------------------------------------------------------- one test


def test_a_link_to_one_test_opens_it(kept_window: Window, place: Path, ran: Result) -> None:
    for item in ran.record.items:
        if item.bad:
            kept_window.again()
            page = kept_window.open(place / "page.html", item.nodeid)
            expect(page.locator("#detail-title")).to_have_text(item.nodeid)
            expect(page.locator("#detail-title")).to_be_focused()
            kept_window.check()


def test_a_link_to_a_test_that_was_not_in_the_run_is_said(kept_window: Window, place: Path) -> None:
    page = kept_window.open(place / "page.html", "test_ops.py::test_gone")
    expect(page.get_by_role("alert")).to_have_text("There is no test test_ops.py::test_gone in this run.")
    expect(page.locator("#detail")).to_be_hidden()


def test_opening_a_test_makes_a_link_and_closing_it_removes_it(page: Page) -> None:
    page.fill("#filter", "test_crash")
    button = page.locator("#list tbody button")
    button.click()
    expect(page).to_have_url(re.compile(r"#item=test_ops\.py%3A%3Atest_crash$"))
    expect(page.locator("#detail")).to_be_visible()  # by an event: Escape may come before it
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile(r"^[^#]*$"))
    expect(button).to_be_focused()


def test_a_hang_is_shown_with_stacks_output_and_the_command_that_runs_it_again(page: Page) -> None:
    page.fill("#filter", "test_hang")
    page.locator("#list tbody button").click()
    detail = page.locator("#detail")
    expect(detail.get_by_label("Stacks")).to_contain_text("in test_hang")
    expect(detail.get_by_label("stdout")).to_contain_text("waiting for an event")
    expect(detail.get_by_label("Run it again")).to_have_text(
        re.compile(r"^ondol test --devices=cpu:2 test_ops\.py::test_hang$")
    )
    expect(detail).to_contain_text("cut off in call")


def test_every_attempt_of_a_test_is_shown(page: Page) -> None:
    page.fill("#filter", "test_dies_once")
    page.locator("#list tbody button").click()
    expect(page.locator("#detail-title")).to_have_text(f"{NAME}test_dies_once")
    heads = page.locator("#detail h3").all_text_contents()
    assert heads.count("Attempt 1") == heads.count("Attempt 2") == 1
    expect(page.locator("#detail")).to_contain_text("SIGKILL")


# ---------------------------------------------------------------------- the other parts


def test_failures_with_a_known_cause_have_its_cure(page: Page) -> None:
    group = page.locator("#failures details", has_text="network file system was deleted or replaced")
    group.evaluate("(box) => { box.open = true; }")
    expect(group).to_contain_text("Keep caches, locks and temporary files on a local disk")
    group.get_by_role("button", name="test_stale").click()
    expect(page.locator("#detail-title")).to_have_text(f"{NAME}test_stale")


def test_suspects_devices_and_caches_are_there(page: Page) -> None:
    suspects = page.locator("#suspects")
    expect(suspects).to_contain_text("test_dies_once")
    expect(suspects).to_contain_text("thread:")
    for device in ("cpu0", "cpu1"):
        expect(page.locator("#devices")).to_contain_text(device)
    expect(page.locator("#cache")).to_contain_text("/store")
    expect(page.locator("#slowest tbody")).to_contain_text("test_hang")


def test_what_a_run_of_devices_and_tools_has_to_say(window: Callable[..., Window], tmp_path: Path) -> None:
    """Once told by a journal: a device set aside with its witnesses, a probe, a state leak, a cache by tool."""
    tool = {
        "name": "triton",
        "filled": 5,
        "filled_bytes": 2048,
        "used": 4,
        "new": 2,
        "published": 1,
        "seconds_saved": 12.5,
    }
    tool |= {"untrusted": {"not signed": 3}, "left_out": 7}
    book = Book(tmp_path / "told.jsonl")
    book.write(
        journal.Run(slots={"gpu0": "gpu0", "gpu1": "gpu1"}, devices=[{"name": "gpu0", "kind": "cuda"}]),
        journal.Planned(["test_a.py::test_leak", "test_a.py::test_witness"]),
        journal.Start(0, 1, "gpu0", "gpu0-1", "gpu0", True),
        journal.End(0, 1, "failed", "failed", "assert 0", 0.1),
        journal.Start(0, 2, "gpu0", "gpu0-2", "gpu0", False),
        journal.End(0, 2, "passed", "", "", 0.1),
        journal.Verdict(0, "passed", True, "state-leak suspect: failed in a warm worker, passed in a fresh one"),
        journal.Start(1, 1, "gpu1", "gpu1-1", "gpu1", True),
        journal.End(1, 1, "device-lost", "device", "gone", 0.1),
        messages.Probed("gpu1", "no answer in 30 s"),
        journal.Quarantine("gpu1", "its probe failed", [1]),
        journal.Verdict(1, "device-lost", False, "gone"),
        journal.Over(121, {}),
        messages.NodeRoom("", 0, {"store": "/ci-cache/ondol", "tools": {"triton": tool}}),
    )
    book.close()
    (tmp_path / "told.html").write_text(run_page.render(load(tmp_path / "told.jsonl")))
    page = window().open(tmp_path / "told.html")
    expect(page.locator("#suspects")).to_contain_text("State-leak suspects")
    expect(page.locator("#suspects").get_by_role("button")).to_have_text("test_a.py::test_leak")
    device = page.locator("#devices tr", has_text="gpu1")
    expect(device).to_contain_text("quarantined: its probe failed")
    expect(device).to_contain_text("probes: no answer in 30 s")
    expect(device.get_by_role("button")).to_have_text("test_a.py::test_witness")
    cells = page.locator("#cache tbody td").all_text_contents()
    assert cells == [
        *("triton", "5 (2.0 KiB)", "4", "2", "0", "1 (0 B)", "12.5 s", "0.00 s"),
        "3 not signed; 7 left in the store (fill-max)",
    ]


@pytest.mark.warm_pytest
def test_what_is_new_and_what_was_mended_since_an_earlier_run(window: Callable[..., Window], suite: Suite) -> None:
    """Typed as CI types it, in the first run of all and in the next."""
    suite.variables = {"XDG_STATE_HOME": str(suite.path / "state"), "ONDOL_STORE": str(suite.path / "store")}
    suite.write(test_a="def test_mended(): assert 0\ndef test_broken(): pass\ndef test_red(): assert 0\n")
    words = ("--ondol-html=page.html", "--against=latest")
    first = suite.ondol(*words, devices="cpu:1")
    assert "warning: --against latest: there is no journal" in first.output
    assert "Against" not in window().open(suite.path / "page.html").locator("#failures").inner_text()
    suite.write(test_a="def test_mended(): pass\ndef test_broken(): assert 0\ndef test_red(): assert 0\n")
    assert "--against latest" not in suite.ondol(*words, devices="cpu:1").output
    failures = window().open(suite.path / "page.html").locator("#failures")
    expect(failures).to_contain_text("1 new, 1 failed before too, 1 fixed, 0 added, 0 gone")
    expect(failures.locator("details", has_text="test_broken")).to_contain_text("test_broken failed, new")
    expect(failures.locator("p:text-is('fixed') + ul")).to_have_text("test_a.py::test_mended")


def test_what_is_muted_is_shown_and_not_counted_as_bad(window: Callable[..., Window], tmp_path: Path) -> None:
    book = Book(tmp_path / "muted.jsonl")
    book.write(
        journal.Run(slots={"gpu0": "gpu0"}),
        journal.Planned(["test_a.py::test_known"]),
        journal.Known({"0": "the driver's fault"}, []),
        journal.Start(0, 1, "gpu0", "gpu0-1", "gpu0", True),
        journal.End(0, 1, "failed", "failed", "assert 0", 0.1),
        journal.Verdict(0, "failed", False, "assert 0"),
        journal.Over(0, {}),
    )
    book.close()
    (tmp_path / "muted.html").write_text(run_page.render(load(tmp_path / "muted.jsonl")))
    page = window().open(tmp_path / "muted.html")
    assert page.title().startswith("all good")
    expect(page.locator("#failures")).to_contain_text("test_a.py::test_known the driver's fault")
    page.select_option("#verdict", "known")
    expect(page.locator("#list tbody tr[aria-rowindex]")).to_contain_text("failed, muted")
    page.select_option("#verdict", "bad")
    assert rows(page) == []


# ---------------------------------------------------------------------- light, dark, paper, everybody


def background(page: Page) -> str:
    return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))


def test_dark_follows_the_system_until_somebody_chooses(window: Callable[..., Window], place: Path) -> None:
    page = window(color_scheme="dark").open(place / "page.html")
    dark = background(page)
    page.click("#theme")
    light = background(page)
    assert dark != light
    expect(page.locator("#theme")).to_have_text("Theme: light")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert background(page) == light, "the choice is remembered"
    page.click("#theme")
    assert background(page) == dark
    assert background(window(color_scheme="light").open(place / "page.html")) == light


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("item", ["", f"{NAME}test_hang"])
def test_axe_finds_nothing(
    kept_window: Window, place: Path, scheme: Literal["light", "dark"], width: int, item: str
) -> None:
    kept_window.again(width, scheme)
    page = kept_window.open(place / "page.html", item)
    page.evaluate("() => document.querySelectorAll('details').forEach((box) => { box.open = true; })")
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run()")
    assert found["passes"], "it has looked"
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []


def test_nothing_is_wider_than_a_phone(window: Callable[..., Window], place: Path) -> None:
    page = window(viewport={"width": 390, "height": 800}).open(place / "page.html")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


def test_rows_can_be_walked_with_the_arrow_keys(page: Page, ran: Result) -> None:
    page.locator("#list tbody button").first.focus()
    total = len(ran.record.items)
    for _ in range(total + 2):
        page.keyboard.press("ArrowDown")
    row = page.locator("#list tr:has(button:focus)")
    assert row.get_attribute("aria-rowindex") == str(total + 1), "the last one, below the head"
    page.keyboard.press("ArrowUp")
    assert row.get_attribute("aria-rowindex") == str(total)


def test_paper_has_every_row_in_light_colours(window: Callable[..., Window], place: Path, ran: Result) -> None:
    page = window(color_scheme="dark").open(place / "page.html")
    page.emulate_media(media="print")
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    assert len(rows(page)) == len(ran.record.items)
    assert background(page) == "rgb(255, 255, 255)"
    expect(page.locator("#filter")).to_be_hidden()
    assert page.pdf()[:5] == b"%PDF-"
