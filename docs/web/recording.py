"""A real run as a picture of a terminal: `python docs/web/recording.py` runs the demo and draws what it printed."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "docs" / "images" / "demo.svg"


def main() -> int:
    done = subprocess.run(
        ["make", "--silent", "demo"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    console = Console(record=True, width=118, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ make demo", style="bold"))
    console.print(Text.from_ansi(done.stdout))
    # Fonts of the picture come from elsewhere unless they are left out; a page of ours loads nothing.
    drawn = console.export_svg(title="ondol", clear=False)
    IMAGE.write_text("\n".join(line for line in drawn.splitlines() if "url(" not in line or "http" not in line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
