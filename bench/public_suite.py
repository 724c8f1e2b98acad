"""A public test suite by plain pytest and by Ondol, result by result: `python -m bench.public_suite`.

The package comes, as a wheel that ships its own tests, from the package index that pip is configured with; nothing is
built. Another one: `python -m bench.public_suite PACKAGE==VERSION TESTS…` (paths or modules inside the package).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

Outcome = dict[tuple[str, str], str]

DEFAULT = ["networkx==3.4.2", "networkx/algorithms/tests", "networkx/classes", "networkx/utils"]
WAYS = (["--ondol-devices=cpu:1"], ["--ondol-devices=cpu:2"], ["--ondol-devices=cpu:2", "--ondol-isolate=item"])


def fetch(requirement: str, into: Path) -> Path:
    """The package and its tests, unpacked from its wheel."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    where = ["--no-deps", "--only-binary", ":all:", "--target", str(into)]
    subprocess.run([*pip, "install", *where, requirement], check=True)
    return into


def outcomes(junit: Path) -> Outcome:
    """By name; equal names (one test inherited by several classes of one name) are numbered."""
    found: Outcome = {}
    times: Counter[tuple[str, str]] = Counter()
    for case in ElementTree.parse(junit).iter("testcase"):
        tags = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        key = case.get("classname", ""), case.get("name", "")
        times[key] += 1
        found[key[0], f"{key[1]}#{times[key]}"] = tags[0] if tags else "passed"
    return found


def run(root: Path, tests: list[str], flags: list[str]) -> tuple[Outcome, float, int]:
    junit = root / "out.xml"
    junit.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={root}"]
    command += [f"--junitxml={junit}", *flags, *tests]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    start = time.monotonic()
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if not junit.exists():
        sys.exit(done.stdout + done.stderr)
    return outcomes(junit), time.monotonic() - start, done.returncode


def main() -> None:
    requirement, *tests = sys.argv[1:] or DEFAULT
    with tempfile.TemporaryDirectory() as name:
        root = fetch(requirement, Path(name))
        plain, seconds, status = run(root, tests, [])
        counts = ", ".join(f"{count} {outcome}" for outcome, count in Counter(plain.values()).most_common())
        print(
            f"{requirement}: {len(plain)} items ({counts}), plain pytest {seconds:.1f} s, status {status}", flush=True
        )
        equal = True
        for flags in WAYS:
            ours, seconds, status = run(root, tests, flags)
            different = {key for key in plain.keys() | ours.keys() if plain.get(key) != ours.get(key)}
            equal = equal and not different
            print(f"  {' '.join(flags)}: {seconds:.1f} s, status {status}, {len(different)} different", flush=True)
            for key in sorted(different)[:20]:
                print(f"    {'::'.join(key)}: plain {plain.get(key)}, ondol {ours.get(key)}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
