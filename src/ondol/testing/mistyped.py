"""A word that is nearly an option of ours, named before any conftest is imported, which can take half a minute.

Whatever pytest would accept must be accepted: a suite's own `--device` is no slip of `--devices`. By now pytest and all
plugins have said what they know, and only the first conftests can still add options. Their text is looked at: one that
holds the word knows it. Where none of them can add any option, nothing is run; else the word is named, and left to
pytest.
"""

import copy
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol import options
from ondol.errors import closest
from ondol.foreign_text import printable

#: How a conftest, or what it brings along, can add options.
_CAN_ADD = re.compile(r"addoption|pytest_plugins|import \*|exec\(|globals\(")
_LIKE = 0.75


def check(config: pytest.Config, parser: pytest.Parser, arguments: list[str]) -> None:
    """Raise `pytest.UsageError` for a word that nobody can know; tell about one that perhaps nobody knows."""
    unknown = parser.parse_known_and_unknown_args(arguments, copy.copy(config.option))[1]
    typed = {str(word) for word in config.invocation_params.args}
    known = [option.name for option in options.of("test")]
    words = {word.partition("=")[0] for word in unknown if word in typed and word.startswith("--")}
    found = {word: closest(word.removeprefix("--").removeprefix("ondol-"), known, _LIKE) for word in words}
    nearly = {word: meant for word, meant in found.items() if meant}
    if not nearly:
        return
    conftests = [path.read_text(errors="replace") for path in set(_reached(config, typed)) if os.access(path, os.R_OK)]
    for word, meant in nearly.items():
        if any(word in text for text in conftests):
            continue
        said = f"{word} is no option of Ondol, pytest or a plugin; did you mean --{meant}?"
        if not any(map(_CAN_ADD.search, conftests)):
            raise pytest.UsageError(f"{said} Nothing was run")
        sys.stderr.write(f"ondol: warning: {printable(said)} A conftest of this suite may still add it\n")


def _reached(config: pytest.Config, typed: set[str]) -> Iterator[Path]:
    """Where the conftests are that pytest imports before it parses again, and some more."""
    here = config.invocation_params.dir
    named = [here / word.partition("::")[0] for word in typed if not word.startswith("-")]
    listed = [config.rootpath / path for path in config.getini("testpaths")]
    for anchor in [here, config.rootpath, *named, *listed]:
        folder = anchor if anchor.is_dir() else anchor.parent
        for place in [folder, *folder.parents, *folder.glob("test*")]:
            yield place / "conftest.py"
