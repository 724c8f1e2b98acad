"""A public test suite by plain pytest and by Ondol, result by result: `python -m bench.public_suite attrs==25.3.0`.

The source distribution comes from the package index that pip is configured with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

Outcome = dict[tuple[str, str], str]


def fetch(requirement: str, into: Path) -> Path:
    """The unpacked source distribution, its package installed beside it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", requirement, "-d", str(into)], check=True)
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(into / "source", filter="data")
    (root,) = (into / "source").iterdir()
    subprocess.run([*pip, "install", "--target", str(into / "installed"), str(root)], check=True)
    return root


def outcomes(junit: Path) -> Outcome:
    found: Outcome = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        tags = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        found[case.get("classname", ""), case.get("name", "")] = tags[0] if tags else "passed"
    return found


def run(root: Path, tests: list[str], flags: list[str], installed: Path) -> tuple[Outcome, float, int]:
    junit = root / "out.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", *flags, *tests]
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"}
    start = time.monotonic()
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if not junit.exists():
        sys.exit(done.stdout + done.stderr)
    return outcomes(junit), time.monotonic() - start, done.returncode


def main() -> None:
    requirement, tests = sys.argv[1], sys.argv[2:] or ["tests"]
    with tempfile.TemporaryDirectory() as name:
        into = Path(name)
        root = fetch(requirement, into)
        plain, seconds, status = run(root, tests, [], into / "installed")
        print(f"{requirement}: {len(plain)} items, plain pytest {seconds:.1f} s, status {status}")
        equal = True
        for flags in (
            ["--ondol-devices=cpu:1"],
            ["--ondol-devices=cpu:2"],
            ["--ondol-devices=cpu:2", "--ondol-isolate=item"],
        ):
            ours, seconds, status = run(root, tests, flags, into / "installed")
            different = {key for key in plain.keys() | ours.keys() if plain.get(key) != ours.get(key)}
            equal = equal and not different
            print(f"  {' '.join(flags)}: {seconds:.1f} s, status {status}, {len(different)} different", flush=True)
            for key in sorted(different)[:20]:
                print(f"    {'::'.join(key)}: plain {plain.get(key)}, ondol {ours.get(key)}")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
