"""Ten thousand tests are an ordinary suite: the page stays small and only builds what can be seen."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ondol.fleet import journal, messages
from ondol.fleet.record import Book, load
from ondol.report import run_page
from report_window import Window

MANY, DEVICES = 10_000, 8
LIMIT = 2_000_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 10,000 items, one of twenty failed with a traceback of its own."""
    place, dice = tmp_path_factory.mktemp("large"), random.Random(7)
    book = Book(place / "large.jsonl")
    names = [f"tests/ops/test_{n % 97}_attention.py::TestForward::test_op[bf16-{n}-causal]" for n in range(MANY)]
    slots = {f"gpu{n}": f"gpu{n}" for n in range(DEVICES)}
    book.write(journal.Run(slots=slots, root="/src"), journal.Planned(names))
    book.write(*(messages.WorkerUp(slot, f"{slot}-1", 1, 2.5) for slot in slots))
    for n in range(MANY):
        slot, bad = f"gpu{n % DEVICES}", n % 20 == 0
        spent = dice.random()
        phases = [
            {"when": w, "outcome": "passed", "duration": spent * p}
            for w, p in (("setup", 0.1), ("call", 0.8), ("teardown", 0.1))
        ]
        text = (
            "".join(f"E   {dice.random()} != {dice.random()} in /src/ops/kernel_{n}.py:{line}\n" for line in range(40))
            if bad
            else ""
        )
        outcome = "failed" if bad else "passed"
        book.write(
            journal.Start(n, 1, slot, f"{slot}-1", slot, n >= DEVICES),
            journal.End(
                n, 1, outcome, outcome if bad else "", f"assert {n} == 0" if bad else "", spent, phases, text=text
            ),
            journal.Verdict(n, outcome, False, f"assert {n} == 0" if bad else ""),
        )
    book.write(journal.Over(1, {}))
    book.close()
    (place / "large.html").write_text(run_page.render(load(place / "large.jsonl")))
    return place / "large.html"


def test_ten_thousand_items_are_less_than_two_megabytes(large: Path) -> None:
    assert large.stat().st_size < LIMIT


def test_only_rows_that_can_be_seen_exist(window: Callable[..., Window], large: Path) -> None:
    page = window().open(large)
    expect(page.locator("#count")).to_have_text("10000 of 10000")
    elements = page.evaluate("() => document.querySelectorAll('*').length")
    assert elements < 1500
    rows = page.locator("#list tbody tr[aria-rowindex]")
    assert 0 < rows.count() < 60
    page.locator("#scroll").evaluate("(frame) => { frame.scrollTop = frame.scrollHeight; }")
    expect(rows.last.locator("button")).to_have_text(
        "tests/ops/test_8_attention.py::TestForward::test_op[bf16-9999-causal]"
    )
    assert rows.count() < 60
    page.fill("#filter", "-9999-")
    expect(page.locator("#count")).to_have_text("9999 of 10000")
    page.select_option("#verdict", "failed")
    expect(page.locator("#count")).to_have_text("500 of 10000")
    assert rows.count() < 60


def test_failures_that_differ_in_numbers_only_are_one_group(window: Callable[..., Window], large: Path) -> None:
    page = window().open(large)
    expect(page.locator("#failures summary")).to_have_text("500 tests: failed: assert 0 == 0")
    assert page.locator("#failures li").count() == 51, "fifty, and how many more"


def test_what_does_not_fit_is_said_instead_of_shown(window: Callable[..., Window], tmp_path: Path) -> None:
    """Three hundred failures of sixty kilobytes that no compression makes smaller."""
    dice, book = random.Random(8), Book(tmp_path / "long.jsonl")
    book.write(journal.Run(slots={"gpu0": "gpu0"}), journal.Planned([f"test_a.py::test_{n}" for n in range(300)]))
    for n in range(300):
        end = journal.End(n, 1, "failed", "failed", "no", 0.1, text=dice.randbytes(30_000).hex())
        book.write(journal.Start(n, 1, "gpu0", "gpu0-1", "gpu0", False), end, journal.Verdict(n, "failed", False, "no"))
    book.close()
    made = tmp_path / "long.html"
    made.write_text(run_page.render(load(tmp_path / "long.jsonl")))
    assert made.stat().st_size < LIMIT
    page = window().open(made, "test_a.py::test_0")
    expect(page.get_by_label("Failure")).to_contain_text(
        "[… 40000 characters are left out here; the journal has them …]"
    )
    page = window().open(made, "test_a.py::test_299")
    expect(page.get_by_label("Failure")).to_contain_text("left out to keep this file small")


def test_a_run_that_never_began_is_a_page_too(window: Callable[..., Window], tmp_path: Path) -> None:
    book = Book(tmp_path / "none.jsonl")
    book.write(journal.Collecting("test_a.py"), journal.CollectionFault("test_a.py", "killed by SIGSEGV"))
    book.close()
    made = tmp_path / "none.html"
    made.write_text(run_page.render(load(tmp_path / "none.jsonl")))
    page = window().open(made)
    expect(page.locator("#failures")).to_contain_text(
        "test_a.py ended the process that collected it: killed by SIGSEGV"
    )
    expect(page.locator("#headline")).to_contain_text("cut off")
