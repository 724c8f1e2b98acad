"""`ondol store show KEY`"""

from __future__ import annotations

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.errors import EntryUntrusted, PackError, StoreError
from ondol.jobs.open_store import open_store
from ondol.light import Any
from ondol.report import table
from ondol.store import pack
from ondol.store.api import Stored
from ondol.store.directory import DirectoryStore

_DESCRIPTION = (
    "Show one entry: its files, where it came from, what a hit saves. KEY may be cut short while it is unambiguous."
)
_EXAMPLES = "  ondol store show 5DKNV7"


def main(arguments: list[str]) -> int:
    made = flags.parser("store show", _DESCRIPTION, _EXAMPLES)
    made.add_argument("key", metavar="KEY")
    parsed = made.parse_args(arguments)
    store = open_store(flags.settings(parsed))
    found = [stored for stored in store.everything() if stored.address.key.startswith(parsed.key)]
    keys = {stored.address.key for stored in found}
    if not found:
        raise StoreError(f"no entry {parsed.key!r} in {store.where}", hint=f"ondol store ls --store {store.where}")
    if len(keys) > 1:
        raise StoreError(
            f"{parsed.key!r} is ambiguous", because=", ".join(sorted(keys)[:5]), hint="type more of the key"
        )
    facts = [_facts(store, stored) for stored in found]
    if parsed.json:
        output.say_json("store-show", {"entries": facts})
    else:
        for entry in facts:
            _print(entry)
    return exitcodes.OK


def _facts(store: DirectoryStore, stored: Stored) -> dict[str, Any]:
    facts = {**stored.address._asdict(), "owner": stored.owner, "trusted": stored.trusted, "packed": stored.size}
    try:
        manifest = pack.inspect(store.fetch(stored), stored.address)
    except (PackError, OSError) as error:
        return {**facts, "problem": str(error)}
    try:
        store.vet(stored, manifest)
    except (PackError, EntryUntrusted) as error:
        facts |= {"trusted": False, "problem": str(error)}
    facts |= {"signer": manifest.signer, "digest": manifest.seal.digest.hex()}
    table_of_files = [{"name": n, "size": s, "executable": x, "sha256": d} for n, s, x, d in manifest.files]
    facts |= {"title": manifest.title, "seconds": manifest.seconds, "provenance": manifest.provenance}
    return {**facts, "files": table_of_files}


def _date(value: object) -> str:
    """Seconds since the epoch as people read them; whatever else a foreign pack says, as it is."""
    import time

    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(str(value))))
    except (ValueError, OverflowError, OSError):
        return str(value)


def _print(facts: dict[str, Any]) -> None:
    for name in ("key", "tool", "title", "scope", "fingerprint", "owner", "trusted", "problem", "signer", "digest"):
        if name in facts:
            output.say(f"{name.ljust(12)} {facts[name]}")
    if "files" not in facts:
        return
    output.say(f"{'packed'.ljust(12)} {words.size(facts['packed'])}")
    output.say(f"{'saves'.ljust(12)} {words.seconds(facts['seconds'])}")
    for name, value in sorted(facts["provenance"].items()):
        shown = _date(value) if name == "time" else str(value)
        output.say(f"{name.ljust(12)} {shown}")
    rows = [(f["name"], words.size(f["size"]), f["sha256"][:16]) for f in facts["files"]]
    output.say_lines(table.render(("file", "size", "sha256"), rows, right=(1,)))
