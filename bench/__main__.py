"""`python -m bench [--list] [--write] [names…]`: run benches, print their tables, optionally put them on the page."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module

from bench import machine, page
from bench.rows import markdown

#: name → module; each has `run() -> list[Row]`. In the order of the page.
BENCHES = {
    "start-up": "bench.start_up",
    "fill": "bench.fill",
    "publish": "bench.publish",
    "growth": "bench.growth",
    "beside": "bench.beside",
    "crowd": "bench.crowd",
    "ranks": "bench.ranks",
    "triton": "bench.triton_program",
    "inductor": "bench.inductor_program",
    "engines": "bench.engines",
    "suites": "bench.suites",
}


def main() -> int:
    """Run what was named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which: {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--list", action="store_true", help="say what there is, run nothing")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    parsed = parser.parse_args()
    unknown = [name for name in parsed.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no bench {unknown[0]!r}; there are {', '.join(BENCHES)}")
    if parsed.list:
        for name, module in BENCHES.items():
            print(f"{name:10} {(import_module(module).__doc__ or '').splitlines()[0]}")
        return 0
    print(machine.describe(), flush=True)
    for name in parsed.names or BENCHES:
        started = time.monotonic()
        rows = import_module(BENCHES[name]).run()
        print(f"\n## {name} ({time.monotonic() - started:.0f} s)\n\n{markdown(rows)}", flush=True)
        if parsed.write:
            page.write(name, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
