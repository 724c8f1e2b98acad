"""docs/benchmarks.md: prose written by people, tables written by the benches between two markers each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

from bench import machine, measure, plots
from bench.rows import Row, markdown

PAGE = measure.ROOT / "docs" / "benchmarks.md"


def write(name: str, rows: Sequence[Row]) -> None:
    """Replace one bench's table. Raises `LookupError` if the page has no place for it."""
    text = PAGE.read_text(encoding="utf-8")
    opening, closing = f"<!-- bench: {name} -->", f"<!-- end: {name} -->"
    today = datetime.now(timezone.utc).date().isoformat()
    origin = f"*{today}, {machine.describe()}: `python -m bench {name} --write`*"
    between = re.compile(f"{re.escape(opening)}.*?{re.escape(closing)}", re.DOTALL)
    body = f"{opening}\n{markdown(rows)}\n\n{origin}\n{closing}"
    text, count = between.subn(lambda _: body, text)
    if count != 1:
        raise LookupError(f"{PAGE.name} has no place for {name!r}: {opening} … {closing}")
    PAGE.write_text(text, encoding="utf-8")
    plots.write()
