"""`python -m bench.gpu [--within SECONDS] [steps…]`: what needs an NVIDIA GPU, on one that is lent for minutes.

Without steps: the small suite of our own, all ways side by side. Steps are done one after the other; those joined by
`+` at the same time. A step that fails does not stop the next, and each has a limit. What cold steps leave is kept for
warm ones, also of a later call on the same machine ($BENCH_GPU_DIR). Results go to $OUT: `results.json` with
everything, and a log for each group of steps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from bench import measure
from bench.gpu import carry, small, suites, users
from bench.gpu.process import PLACE, ROOT, environment, own, python, run
from bench.gpu.suites import LOGS, Facts

#: A log of which only the end is sent back.
LONGEST = 1_500_000
Step = Callable[[float], Facts]


def of_ours(words: list[str], limit: float) -> Facts:
    """Something of this checkout, which has its entry point."""
    env = environment(ROOT)
    path = [PLACE / "site", PLACE / "entry", measure.ROOT / "src", measure.ROOT]
    env["PYTHONPATH"] = os.pathsep.join(map(str, path))
    name = f"own-{words[1]}".replace(".", "-")
    ended = run(python(*words), LOGS / f"{name}.log", limit, env, measure.ROOT)
    return {**ended.facts(), "last": ended.output.strip().splitlines()[-12:], "logs": [name]}


def steps() -> dict[str, tuple[float, Step]]:
    """Name → its limit in seconds, and what it does."""
    found: dict[str, tuple[float, Step]] = {}
    for name, suite in suites.SUITES.items():
        for way in ("plain", "files", *suites.WORKERS):
            for state, limit in (("cold", 420.0), ("warm", 180.0)):
                found[f"{name}:{way}:{state}"] = (limit, partial(suites.step, suite, way, state))
        found[f"{name}:kill"] = (150.0, partial(suites.kill, suite))
        for when in ("first", "again", "kill"):
            found[f"{name}:taken:{when}"] = (180.0, partial(suites.taken, suite, when))
    for what, limit in (("root", 420.0), ("publish", 420.0), ("before", 150.0), ("run", 200.0), ("test", 200.0)):
        found[f"users:{what}"] = (limit, partial(users.step, what))
    found["own:tests"] = (330.0, partial(of_ours, ["-m", "pytest", "-q", "tests/gpu"]))
    found["own:small"] = (200.0, partial(of_ours, ["-m", "bench.gpu.small"]))
    return found


class Session:
    """One call: its time, and its results together with those of earlier calls on this machine."""

    def __init__(self, within: float) -> None:
        self._end = time.monotonic() + within
        self._out = Path(os.environ.get("OUT") or own(PLACE, ROOT) / "out")
        self._out.mkdir(parents=True, exist_ok=True)
        self._kept = PLACE / "results.json"
        before = json.loads(self._kept.read_text()) if self._kept.exists() else {"steps": {}}
        self.results: dict[str, Any] = {**before, "machine": carry.unpack()}
        self._write()

    def do(self, names: list[str]) -> None:
        """All of them at the same time."""
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(partial(self._one, names), names))

    def _one(self, names: list[str], name: str) -> None:
        limit, step = steps()[name]
        limit = min(limit, self._end - time.monotonic() - 25)
        told: Facts = {"at": time.strftime("%H:%M:%S", time.gmtime())}
        if limit < 20:
            told["error"] = "no time left"
        else:
            try:
                told.update(step(limit))
            except Exception:
                told["error"] = traceback.format_exc()[-1500:]
        told["beside"] = [other for other in names if other != name]
        self.results["steps"][name] = told
        print(row(name, told), flush=True)
        self._log(name, told)
        self._write()

    def _log(self, name: str, told: Facts) -> None:
        with open(self._out / f"{name.partition(':')[0]}.log", "a", encoding="utf-8") as file:
            for log in told.get("logs", []):
                text = (LOGS / f"{log}.log").read_text(errors="replace")[-LONGEST:]
                file.write(f"\n######## {name}: {log}\n{text}\n")

    def _write(self) -> None:
        text = json.dumps(self.results, indent=1)
        for path in (self._kept, self._out / "results.json"):
            path.write_text(text)


COLUMNS = ["step", "status", "seconds", "after collection", "results", "as plain", "largest MiB"]
COLUMNS += ["caches (filled/used/new/published)"]


_YES_OR_NO = {True: "yes", False: "NO", None: ""}


def row(name: str, told: Facts) -> str:
    if "error" in told:
        return f"| {name} | {told['error'].strip().splitlines()[-1][:200]} |"
    caches = [f"{tool} {'/'.join(map(str, counts.values()))}" for tool, counts in told.get("caches", {}).items()]
    counts = ", ".join(f"{count} {verdict}" for verdict, count in told.get("counts", {}).items())
    status = f"{told['status']}{' cut off' if told.get('cut_off') else ''}"
    cells = [name, status, told["seconds"], told.get("after_collection", ""), counts or (told.get("last") or [""])[-1]]
    cells += [_YES_OR_NO[told.get("as_plain")], told["largest_mib"], ", ".join(caches)]
    extra = [*told.get("mode", [])]
    if told.get("killed"):
        extra.append(f"next item {told['killed']['next_item_after']} s after the kill")
    return f"| {' | '.join(map(str, cells))} | {'; '.join(extra)}".rstrip()


def main() -> int:
    known = steps()
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="step[+step…]", help=", ".join(known))
    parser.add_argument(
        "--within", type=float, default=3600, metavar="SECONDS", help="begin and allow nothing after this"
    )
    parsed = parser.parse_args()
    groups = [word.split("+") for word in parsed.steps]
    unknown = [name for group in groups for name in group if name not in known]
    if unknown:
        parser.error(f"there is no step {unknown[0]!r}; there are {', '.join(known)}")
    if not groups:
        small.main()
        return 0
    session = Session(parsed.within)
    print(json.dumps(session.results["machine"]), flush=True)
    for group in groups:
        session.do(group)
    print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name, told in session.results["steps"].items():
        print(row(name, told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
