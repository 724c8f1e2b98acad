"""`ondol store stats`"""

from __future__ import annotations

import time
from collections import Counter

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.cli.store import parser
from ondol.host import filesystem
from ondol.jobs.open_store import open_store
from ondol.light import Any
from ondol.report import table
from ondol.store import lane as lanes_of
from ondol.store.directory import DirectoryStore

_DESCRIPTION = "How much of what is in a store, from whom, how recently useful; and what its file system has left."
_EXAMPLES = "  ondol store stats --store /ci-cache/ondol"


def main(arguments: list[str]) -> int:
    parsed = parser("stats", _DESCRIPTION, _EXAMPLES).parse_args(arguments)
    store = open_store(flags.settings(parsed))
    facts = _facts(store)
    if parsed.as_json:
        output.say_json(facts)
        return exitcodes.OK
    output.say(f"{store.where}: {words.entries(facts['entries'])}, {words.size(facts['bytes'])}")
    output.say(f"may publish for everybody: {facts['writers']} (said by uid {facts['said_by']})")
    if facts["require_signature"]:
        output.say(f"must be signed: {', '.join(facts['require_signature'])}")
    inodes = "" if facts["free_inodes"] < 0 else f", {facts['free_inodes']} inodes"
    output.say(f"free: {words.size(facts['free_bytes'])}{inodes} on {facts['file_system']}")
    rows = [
        (
            lane["name"],
            "yes" if lane["trusted"] else "no",
            str(lane["entries"]),
            words.size(lane["bytes"]),
            str(lane["quarantined"]),
            str(lane["half_written"]),
        )
        for lane in facts["lanes"]
    ]
    if rows:
        header = ("lane", "trusted", "entries", "packed", "quarantined", "half-written")
        output.say_lines(table.render(header, rows, right=(2, 3, 4, 5)))
    return exitcodes.OK


def _facts(store: DirectoryStore) -> dict[str, Any]:
    everything = list(store.everything())
    entries, taken = Counter(stored.place for stored in everything), Counter[str]()
    for stored in everything:
        taken[stored.place] += stored.weight
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
        "lanes": lanes,
    }
