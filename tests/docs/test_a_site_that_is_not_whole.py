"""The site: a page that nobody finds, a picture that is not what its source says, a request that leaves the reader's machine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bench import plots
from web.__main__ import wanted
from web.drawings import DRAWINGS, drawn

ROOT = Path(__file__).parents[2]


def nav(entries: list[object]) -> Iterator[str]:
    for entry in entries:
        assert isinstance(entry, dict)
        for value in entry.values():
            yield from [value] if isinstance(value, str) else nav(value)


MEASURED = plots.tables(plots.PAGE.read_text())
LISTED = list(nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))


def test_every_page_is_in_the_menu_once() -> None:
    pages = [str(name) for name in wanted() if name.suffix == ".md"]
    assert sorted(LISTED) == sorted(pages)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_what_its_list_says(name: str) -> None:
    assert (ROOT / "docs" / "images" / name).read_text() == drawn(*DRAWINGS[name])


@pytest.mark.parametrize("name", MEASURED)
def test_a_plot_is_what_its_table_says(name: str) -> None:
    """`python -m bench --write` draws them anew with each table."""
    assert (ROOT / "docs" / "images" / f"bench-{name}.svg").read_text() == plots.drawn(name, MEASURED[name])


def test_every_picture_is_shown_on_a_page() -> None:
    text = "".join((ROOT / name).read_text() for name in wanted() if name.suffix == ".md")
    shown = {Path(target).name for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)}
    assert shown == {path.name for path in (ROOT / "docs" / "images").iterdir()}, (
        "each with words for who cannot see it"
    )


@pytest.mark.real
def test_the_site_is_built_whole_and_asks_nobody() -> None:
    built = subprocess.run([sys.executable, "docs/web"], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr
    html = ROOT / ".build" / "site" / "html"
    for name in LISTED:
        page = (
            html / (Path(name).parent if Path(name).name == "README.md" else Path(name).with_suffix("")) / "index.html"
        )
        text = page.read_text()
        assert "<h1" in text, name
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", text)
        assert not [one for one in loaded if "127.0.0.1" not in one], name


def test_no_word_is_misspelt() -> None:
    """Common slips only: of a word that is meant (`dcoker`, in a test of typing errors) nothing is said here."""
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *sorted(map(str, ROOT.glob("*.md"))), "docs", "examples", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
