"""Which lines and branches of each room the cheap tests reach: `make coverage`.

One process of pytest, measured with everything in Python that it starts. What is killed, or loses its environment on
the way, leaves no data and is not counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ["tests/unit", "tests/conformance", "tests/architecture", "tests/e2e"]
PLACE = ROOT / ".build" / "coverage"
KINDS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def coverage(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "coverage", *words], cwd=ROOT).returncode


def rooms(report: dict[str, dict[str, dict[str, Counter[str]]]]) -> dict[str, Counter[str]]:
    """Room of src/ondol → its counts; what is in no room is under its package's own name."""
    found: dict[str, Counter[str]] = {}
    for name, file in report["files"].items():
        inside = Path(name).parts[Path(name).parts.index("ondol") + 1 :]
        room = inside[0] if len(inside) > 1 else "ondol"
        found.setdefault(room, Counter()).update({kind: file["summary"][kind] for kind in KINDS})
    return found


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else ""


def table(found: dict[str, Counter[str]]) -> str:
    lines = ["| room | statements | reached | branches | reached |", "|---|---:|---:|---:|---:|"]
    total: Counter[str] = sum(found.values(), Counter())
    for room, counts in [*sorted(found.items()), ("all", total)]:
        statements, covered, branches, taken = (counts[kind] for kind in KINDS)
        lines.append(
            f"| {room} | {statements} | {share(covered, statements)} | {branches} | {share(taken, branches)} |"
        )
    return "\n".join(lines)


def main() -> int:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    PLACE.chmod(0o1777)  # for tests that become other users
    status = coverage("run", "-m", "pytest", "-q", "-p", "no:cov", *(sys.argv[1:] or FOLDERS))
    report = PLACE / "report.json"
    for words in (["combine", "-q"], ["json", "-q", "-i", "-o", str(report)], ["html", "-q", "-i"]):
        if coverage(*words):
            return 1
    print(table(rooms(json.loads(report.read_text()))))
    print(f"The pages: {os.path.relpath(PLACE / 'html' / 'index.html')}")
    return status


if __name__ == "__main__":
    sys.exit(main())
