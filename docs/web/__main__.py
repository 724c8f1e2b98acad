"""The documentation as a site: `make docs` builds it, `python docs/web --serve` shows it and follows changes.

The pages are the repository's own Markdown, in the repository's own layout, so that a link works in an editor, on a
code host and on the site. This stages what the site needs below `.build/site/pages` and lets Zensical do the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / ".build" / "site"
#: Beside `docs/` and `examples/`: what a reader may want, at the root of the repository.
AT_THE_ROOT = ("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
#: `sh not run: REASON` is for the tests that type the pages; highlighters know `sh` only.
_FENCE = re.compile(r"^( *```\w+) not run: .*$", re.MULTILINE)


def wanted() -> list[Path]:
    """Every file of the site, as it is named in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "docs", "examples", *AT_THE_ROOT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    no_pages = ("docs/made/", "docs/web/")
    return [Path(name) for name in listed if name and not name.startswith(no_pages) and (ROOT / name).exists()]


def stage() -> Path:
    pages = PLACE / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    names = set(wanted())
    for name in names:
        target = pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.suffix == ".md":
            target.write_text(_as_page(name, names))
        else:
            shutil.copy(ROOT / name, target)
    shutil.copy(ROOT / "docs" / "web" / "site.css", pages / "site.css")
    return pages


def _as_page(name: Path, names: set[Path]) -> str:
    def led(found: re.Match[str]) -> str:
        text, target = found.groups()
        path, mark, part = target.partition("#")
        if "://" in target or not path:
            return found[0]
        goal = Path(os.path.normpath(name.parent / path))
        if goal in names:
            return found[0]
        page = goal / "README.md"
        return f"[{text}]({path.rstrip('/')}/README.md{mark}{part})" if page in names else text

    return _LINK.sub(led, _FENCE.sub(r"\1", (ROOT / name).read_text()))


def main() -> int:
    options = argparse.ArgumentParser(prog="python docs/web", description=__doc__)
    options.add_argument("--serve", action="store_true", help="show it at http://127.0.0.1:8000 until Ctrl-C")
    serve = options.parse_args().serve
    stage()
    command = ["serve"] if serve else ["build", "--clean", "--strict"]
    status = subprocess.run(
        [sys.executable, "-m", "zensical", *command, "--config-file", "mkdocs.yml"], cwd=ROOT, check=False
    )
    if status.returncode == 0 and not serve:
        print(f"the site is in {(PLACE / 'html').relative_to(ROOT)}; `python docs/web --serve` shows it")
    return status.returncode


if __name__ == "__main__":
    sys.exit(main())
