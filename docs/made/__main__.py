"""Reference pages that are made from the code's own tables, so that they cannot drift: `python docs/made`.

Writes each page of `PAGES` to `docs/reference`. A test compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from made import doctor, signatures, tables  # noqa: E402

PAGES = {
    "settings": tables.settings,
    "environment": tables.environment,
    "test-options": tables.test_options,
    "tools": tables.tools,
    "doctor": doctor.page,
    "signatures": signatures.page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE.parent / "reference" / f"{name}.md").write_text(page())
