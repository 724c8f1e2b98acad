"""`ondol store stats`"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ondol import units
from ondol.cli import flags, output
from ondol.errors import OndolError
from ondol.host import files, filesystem
from ondol.jobs.open_store import open_store
from ondol.report import store_page, table
from ondol.store import lane as lanes_of
from ondol.store import usage
from ondol.store.directory import DirectoryStore

_SHOWN_DAYS = 7


@flags.command(
    "store stats",
    """How much of what is in a store, from whom; what its file system has left; and what jobs had of it.

Hits are entries that a job took from the store and used, misses those that it had to compile. Seconds saved are what
compiling the used entries had cost, where the compiler's own files tell that. Jobs that may publish report them; of
the last 30 days (here: 7) and of writers that you trust.""",
    """\
  ondol store stats --store /ci-cache/ondol
  ondol store stats --prometheus /var/lib/node_exporter/ondol.prom     for its textfile collector, from cron
  ondol store stats --html store.html                                  a page to look at""",
)
def main(parsed: argparse.Namespace) -> None:
    facts = _facts(open_store(flags.settings(parsed)))
    for name, path, render in (
        ("prometheus", parsed.prometheus, store_page.metrics),
        ("html", parsed.html, store_page.render),
    ):
        if path:
            _write(f"--{name}", path, render(facts))
    if parsed.json or not (parsed.prometheus or parsed.html):
        output.answer("store-stats", facts, _lines(facts), as_json=parsed.json)


def _write(flag: str, path: str, text: str) -> None:
    """Somebody may look at any moment."""
    try:
        files.write_whole(path, text.encode("utf-8", "replace"), 0o644)
    except OSError as error:
        hint = "name a file in a directory that you can write"
        raise OndolError(f"{flag} {path} was not written", because=error.strerror or str(error), hint=hint)


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"{facts['store']}: {units.entries(facts['entries'])}, {units.size(facts['bytes'])}"
    yield f"may publish for everybody: {facts['writers']} (set by uid {facts['said_by']})"
    if facts["require_signature"]:
        yield f"must be signed: {', '.join(facts['require_signature'])}"
    inodes = "" if facts["free_inodes"] < 0 else f", {facts['free_inodes']} inodes"
    yield f"free: {units.size(facts['free_bytes'])}{inodes} on {facts['file_system']}"
    if facts["lanes"]:
        header = ("lane", "used by you", "entries", "packed", "set aside", "half-written")
        yield from table.lines(header, [*map(store_page.lane_cells, facts["lanes"])], right=(2, 3, 4, 5))
    days = sorted({row["day"] for row in facts["jobs"]})[-_SHOWN_DAYS:]
    jobs = [[*map(str, row.values())] for row in facts["jobs"] if row["day"] in days]
    if jobs:
        yield from table.lines([name.replace("_", " ") for name in facts["jobs"][0]], jobs, right=(2, 3, 4, 5))


def _facts(store: DirectoryStore) -> dict[str, Any]:
    everything = list(store.everything())
    entries, taken = Counter(stored.place for stored in everything), Counter[str]()
    of_tool, taken_of_tool = Counter(stored.address.tool for stored in everything), Counter[str]()
    for stored in everything:
        taken[stored.place] += stored.weight
        taken_of_tool[stored.address.tool] += stored.weight
    uses = store.last_uses()
    week = time.time() - 7 * 86400
    free, inodes = filesystem.free_space(store.root_fd())
    lanes = [
        {
            "name": lane.name,
            "owner": lane.owner,
            "trusted": store.trusts(lane.owner),
            "entries": entries[lane.name],
            "bytes": taken[lane.name],
            "quarantined": len(lane.names(lanes_of.QUARANTINE)),
            "half_written": len(lane.names(lanes_of.TMP)),
        }
        for lane in store.lanes()
    ]
    return {
        "store": store.where,
        "writers": str(store.marker.writers),
        "said_by": store.marker.owner,
        "require_signature": store.marker.signed,
        "entries": len(everything),
        "bytes": taken.total(),
        "used_last_week": sum(uses.get(stored.address, 0.0) > week for stored in everything),
        "free_bytes": free,
        "free_inodes": inodes,
        "file_system": filesystem.fs_type(store.where),
        "tools": [{"tool": t, "entries": n, "bytes": taken_of_tool[t]} for t, n in of_tool.most_common()],
        "lanes": lanes,
        "jobs": _jobs(store),
    }


def _jobs(store: DirectoryStore) -> list[dict[str, Any]]:
    """By day and tool, whatever the scope."""
    found = []
    for day, _, tool, hits, misses, size, milliseconds in usage.add_up(r._replace(scope="") for r in store.reports()):
        known = {"day": time.strftime("%Y-%m-%d", time.gmtime(day * usage.DAY)), "tool": tool, "hits": hits}
        found.append({**known, "misses": misses, "bytes_used": size, "seconds_saved": milliseconds / 1000})
    return found
