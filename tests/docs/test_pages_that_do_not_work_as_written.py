"""A page tells to type something that fails, or shows what nobody has seen: each command of the pages is run, in order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import NAME, USER, Block, Reader, blocks, checkout
from people import ROOT, Program, needs_root

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "tutorial.md", DOCS / "troubleshooting.md", *sorted((DOCS / "how-to").glob("*.md"))]
LANGUAGES = ("sh", "console", "yaml", "toml", "python", "diff", "text", "ini", "groovy", "dockerfile")
#: The registry that this machine's packages come from.
REGISTRY = ("PIP_", "UV_", "SSL_", "REQUESTS_CA")


@pytest.fixture
def reader(program: Program, public: Path) -> Iterator[Reader]:
    place = public / "reader"
    place.mkdir()
    yield Reader(program, place)
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, block


def runs(page: Path) -> bool:
    return any(block.commands and not block.excuse for block in blocks(page))


@needs_root
@pytest.mark.root
@pytest.mark.real
@pytest.mark.timeout(900)  # some fetch packages
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.name)
def test_what_a_page_tells_to_type_works_in_order(reader: Reader, page: Path) -> None:
    prepare(reader, page)
    registry = {name: value for name, value in os.environ.items() if name.startswith(REGISTRY)}
    page_blocks = [Block("sh", "", BEFORE.get(page.name, [])), *blocks(page)]
    # A reader's machine has none of the plugins of ours; what install.md makes has its own.
    without = {} if page.name == "install.md" else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    typed = reader.reads(page_blocks, **registry, **without)
    assert typed.returncode == 0, typed.stdout
    assert reader.missing(page_blocks) == [], typed.stdout


def prepare(reader: Reader, page: Path) -> None:
    """What the pages take for granted: a clone, a suite, a program, a Makefile, requirements."""
    home = reader.place / "home"
    if page.name == "install.md":
        checkout(home / "ondol")
    for name in ("kernels.py", "benchmark.py"):
        (home / name).write_text(kernels(page))
    tests = home / "tests" / "ops"
    tests.mkdir(parents=True)
    (tests / "test_add.py").write_text("def test_add():\n    assert 1 + 1 == 2\n")
    (home / "Makefile").write_text("deps:\n\ttrue\n")
    (home / "requirements.txt").write_text("iniconfig\n")
    for path in [home, *home.rglob("*")]:
        os.chown(path, USER, USER)


def kernels(page: Path) -> str:
    """The demo; of five kernels instead of nine where nothing depends on their number or size."""
    text = (ROOT / "examples" / "demo" / "kernels.py").read_text()
    assert text.count(" else 4)") == 1
    return text if page.name in ("README.md", "check-a-cache-directory.md") else text.replace(" else 4)", " else 2)")


#: What was there before the reader came to this page.
BEFORE = {
    "adopt-a-cache.md": [
        "sudo ondol store init /ci-cache/ondol",
        "sudo TRITON_CACHE_DIR=/ci-cache/triton python kernels.py",
    ],
    "check-a-cache-directory.md": [
        "sudo mkdir -m 777 /ci-cache/triton",
        "sudo TRITON_CACHE_DIR=/ci-cache/triton python kernels.py",
    ],
    "clean-a-store.md": ["sudo ondol store init /ci-cache/ondol"],
    "guard-a-package-cache.md": ["sudo mkdir -m 1777 /ci-cache/uv", "uv venv --quiet .venv"],
    "keys.md": ["sudo ondol store init /ci-cache/ondol"],
}


@needs_root
@pytest.mark.root
class TestTheReader:
    def test_a_command_that_fails_is_found(self, reader: Reader) -> None:
        typed = reader.reads([Block("sh", "", ["true", "false", "echo later"])])
        assert (typed.returncode, "later" in typed.stdout) == (99, False)

    def test_what_is_shown_and_never_printed_is_found(self, reader: Reader) -> None:
        page = [Block("console", "", ["$ echo 3 warm of 4", "5 warm of 6", "7 cold … 8"])]
        assert reader.reads(page).returncode == 0
        assert reader.missing(page) == ["7 cold … 8"]

    def test_it_is_an_ordinary_user_who_may_become_root(self, reader: Reader) -> None:
        said = reader.reads([Block("sh", "", ["id -un", "x=kept", "sudo id -u", "echo $x", "ls /ci-cache"])]).stdout
        assert said.splitlines() == [
            "$ id -un",
            NAME,
            "$ x=kept",
            "$ sudo id -u",
            "0",
            "$ echo $x",
            "kept",
            "$ ls /ci-cache",
        ]
