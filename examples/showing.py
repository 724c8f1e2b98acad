"""What the incident scripts share: jobs as any user, many at once, and an account of what became of them.

Each script makes one incident happen with the real tools, first as it was (`before`), then with Ondol (`after`). It
ends with 0 only if the incident did happen before and did not happen after, with 1 if it did not come out so, and with
2 if this machine cannot show it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ONDOL = [sys.executable, "-m", "ondol"]
#: No job of an incident takes so long; one that does is a finding of its own.
LIMIT = 900.0


class CannotShow(Exception):
    """This machine lacks something that the incident is made of."""


class Ended:
    """One job that is over."""

    def __init__(self, name: str, status: int, output: str, seconds: float) -> None:
        self.name, self.status, self.output, self.seconds = name, status, output, seconds

    @property
    def good(self) -> bool:
        return self.status == 0

    def lines(self, *having: str) -> list[str]:
        """The lines that hold all of these."""
        return [line for line in self.output.splitlines() if all(text in line for text in having)]


class Job:
    """A command that runs as some user, with nothing of our environment but PATH. Its output goes to a file: a job that
    waits for its reader would not overlap with the others.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        uid: int | None = None,
        umask: int = -1,
        env: Mapping[str, str] | None = None,
        cwd: Path | str = "/",
    ) -> None:
        self.name = name
        self._began = time.monotonic()
        self._output = tempfile.TemporaryFile()
        become: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
        environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": self._output, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(list(command), cwd=cwd, env=environment, umask=umask, **streams, **become)

    def end(self) -> Ended:
        status = self._process.wait(timeout=LIMIT)
        seconds = time.monotonic() - self._began
        with self._output:
            self._output.seek(0)
            output = self._output.read().decode(errors="replace")
        return Ended(self.name, status, output, seconds)


def together(jobs: Sequence[Job]) -> list[Ended]:
    """Jobs that run already, until the last is over."""
    return [job.end() for job in jobs]


def need_root(why: str) -> None:
    if os.geteuid() != 0:
        raise CannotShow(f"{why}: run it as root, in a container or on a machine that you may lose")


def for_everybody(place: Path, folders: Sequence[Path]) -> tuple[str, str]:
    """(a Python, its PYTHONPATH) with what is in these folders, for any user: a checkout may be in somebody's home."""
    python = os.path.realpath(sys.executable)
    if not open_to_all(Path(python)):
        raise CannotShow(f"other users cannot execute {python}: make .venv of the system's own Python")
    if not open_to_all(place):
        raise CannotShow(f"other users cannot reach {place}: set TMPDIR to a directory that they can")
    path = []
    for number, folder in enumerate(dict.fromkeys(one.resolve() for one in folders)):
        if not open_to_all(folder):
            copy = place / f"packages-{number}"
            # Links cost nothing; on another file system there are none.
            if subprocess.run(["cp", "-rL", "--link", folder, copy], capture_output=True, check=False).returncode:
                subprocess.run(["rm", "-rf", copy], check=False)
                subprocess.run(["cp", "-rL", folder, copy], check=True)
            folder = copy
        path.append(str(folder))
    return python, os.pathsep.join(path)


def open_to_all(path: Path) -> bool:
    """Whether every user can come there and look."""
    return (
        all(above.stat().st_mode & 0o001 for above in path.resolve().parents) and path.stat().st_mode & 0o005 == 0o005
    )


class Story:
    """What happened, told while it happens; `--json` keeps the numbers only."""

    def __init__(self, incident: str, quiet: bool, place: str = "") -> None:
        self.facts: dict[str, Any] = {"incident": incident, "before": {}, "after": {}}
        self._quiet, self._place = quiet, place

    def say(self, text: str = "") -> None:
        if not self._quiet:
            print(text, flush=True)

    def heading(self, text: str) -> None:
        self.say(f"\n{text}\n{'-' * len(text)}")

    def show(self, lines: Sequence[str], most: int = 4) -> None:
        """Some lines of a job, as they were printed; paths as if the incident's own directory were the root."""
        for line in lines[:most]:
            self.say(f"    {(line.replace(self._place, '') if self._place else line).strip()[:160]}")
        if len(lines) > most:
            self.say(f"    ... and {len(lines) - most} more such lines")


def main(incident: str, about: str, tell: Callable[[Story, Path], bool], arguments: Sequence[str] | None = None) -> int:
    """`tell` gets a fresh directory that every user can enter, and says whether the incident happened and is gone."""
    parser = argparse.ArgumentParser(prog=f"examples/{incident}/incident.py", description=about)
    parser.add_argument("--json", action="store_true", help="print the numbers only, as one JSON object")
    parser.add_argument("--keep", action="store_true", help="keep the directory that everything happened in")
    options = parser.parse_args(arguments)
    place = tempfile.mkdtemp(prefix=f"ondol-{incident}-")
    story = Story(incident, options.json, place)
    os.chmod(place, 0o755)
    try:
        gone = tell(story, Path(place))
    except CannotShow as trouble:
        print(f"{incident}: this machine cannot show it: {trouble}", file=sys.stderr)
        return 2
    finally:
        if options.keep:
            print(f"everything is kept in {place}", file=sys.stderr)
        else:
            subprocess.run(["rm", "-rf", place], check=False)
    story.facts["gone"] = gone
    story.say(f"\n{'gone with Ondol' if gone else 'NOT as it should be: see above'}")
    if options.json:
        print(json.dumps(story.facts, indent=2))
    return 0 if gone else 1
