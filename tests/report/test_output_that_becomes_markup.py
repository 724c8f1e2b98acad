"""Tests print what they like, and a report is opened by people who are logged in to things: nothing of it is markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from report_window import MARKUP, Window
from suites import Result


def test_hostile_output_ids_and_reasons_stay_text(window: Callable[..., Window], place: Path, ran: Result) -> None:
    hostile = [item for item in ran.record.items if "test_markup" in item.nodeid or "test_id" in item.nodeid]
    assert len(hostile) == 2
    for item in hostile:
        page = window().open(place / "page.html", item.nodeid)
        expect(page.locator("#detail-title")).to_have_text(item.nodeid)
        expect(page.locator("#detail")).to_contain_text(MARKUP)
        page.fill("#filter", "<script>")
        assert page.evaluate("() => document.querySelectorAll('script, img, iframe, object, embed').length") == 3
        assert page.evaluate("() => [...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))") == [
            "#items"
        ]
        assert "owned" not in page.title()


def test_the_file_holds_nothing_of_it_in_the_clear(place: Path) -> None:
    page = (place / "page.html").read_text()
    assert "owned" not in page
    assert page.count("<script") == page.count("</script>") == 3
    data = re.findall(r'<script type="text/plain" id="\w+">(.*?)</script>', page, re.DOTALL)
    assert len(data) == 2
    assert all(re.fullmatch(r"[A-Za-z0-9+/]+=*", one) for one in data)


def test_the_page_forbids_itself_everything_but_its_own_script_and_style(browser, place: Path) -> None:
    """Should a hole ever be found, what gets through it still cannot run or send anything."""
    opened = Window(browser)
    page = opened.open(place / "page.html")
    tried = """() => new Promise((done) => {
        const seen = [];
        setTimeout(() => done(seen), 60000); // for a page that forbids less
        addEventListener("securitypolicyviolation", (event) => {
            seen.push(event.effectiveDirective);
            if (seen.length === 4) done(seen.sort());
        });
        document.body.append(Object.assign(document.createElement("script"), { textContent: "document.title = 'owned'" }));
        document.body.append(Object.assign(document.createElement("img"), { src: "https://example.invalid/leak" }));
        document.body.insertAdjacentHTML("beforeend", "<p onclick='document.title = 1'>x</p>");
        document.body.lastChild.click();
        fetch("https://example.invalid/leak").catch(() => 0);
    })"""
    assert page.evaluate(tried) == ["connect-src", "img-src", "script-src-attr", "script-src-elem"]
    assert "owned" not in page.title()
    opened.context.close()
