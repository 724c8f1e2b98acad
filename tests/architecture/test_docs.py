"""Documentation that can be checked is checked: generated pages, links, the README's length, what must never be committed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from made.__main__ import PAGES as MADE

from ondol import options
from ondol.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


@pytest.mark.parametrize("name", MADE)
def test_page_is_what_the_table_says(name: str) -> None:
    assert (ROOT / "docs" / "reference" / f"{name}.md").read_text() == MADE[name]()


def test_readme_fits_on_a_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_guarantees_name_tests_that_exist() -> None:
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if re.match(r"\| [CR]\d+ \|", line)]
    assert len(table) >= 10
    for row in table:
        for name in re.findall(
            r"`((?:e2e|faults|unit|real|sabotage|fleet|conformance|slurm|engines|walls)/[\w./]*)`", row
        ):
            assert (ROOT / "tests" / name).exists(), f"{name} in the guarantees table"


def test_every_incident_has_a_row_and_a_test_that_proves_it() -> None:
    page = (ROOT / "docs" / "design" / "seeds.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| [A-D]\d\d", line)]
    covered = {number for row in rows for number in re.findall(r"\b[A-D]\d\d\b", row.split("|")[1])}
    last = {"A": 24, "B": 21, "C": 39, "D": 23}
    assert covered == {f"{letter}{n:02}" for letter, most in last.items() for n in range(1, most + 1)}
    for row in rows:
        proofs = re.findall(r"`(\w+/\w+\.py)(?:::(\w+))?`", row)
        assert proofs or "](" in row.split("|")[3], row
        for file, name in proofs:
            text = (ROOT / "tests" / file).read_text()
            assert not name or f"def test_{name}(" in text, f"{file}::{name}"


def test_every_command_and_setting_is_documented() -> None:
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text()
    for name in main.COMMANDS:
        assert f"`ondol {name}" in commands
    settings = (ROOT / "docs" / "reference" / "settings.md").read_text()
    variables = (ROOT / "docs" / "reference" / "environment.md").read_text()
    for option in options.BY_NAME.values():
        assert f"`{option.key}`" in settings
        for page in (settings, variables):
            assert (f"`{option.variable}`" in page) is (option.least != options.FILES_ONLY)


def test_nothing_unfinished_is_committed() -> None:
    words = ["TO" + "DO", "FIX" + "ME", "X" * 3 + ":"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    for name in listed:
        if name.endswith((".py", ".md", ".toml")):
            text = (ROOT / name).read_text()
            assert not any(word in text for word in words), name
