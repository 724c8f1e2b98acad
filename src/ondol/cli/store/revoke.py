"""`ondol store revoke --run | --commit | --owner | --scope | --key | --entry`"""

from __future__ import annotations

import argparse
import os
import time
from datetime import datetime, timezone

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.errors import PackError, StoreError, UsageError
from ondol.jobs.open_store import open_store
from ondol.store import pack, revocations
from ondol.store.directory import DirectoryStore

_DESCRIPTION = """Take entries back: no reader uses them from now on. Nothing is removed; --undo takes the word back.

For the owner of the store, and root. Owner, scope, key and entry are evidence; run, commit and --before are what the
maker of an entry said of itself: enough after a mishap, not against somebody who lies."""
_EXAMPLES = """\
  ondol store revoke --run 7315 --why "bad compiler image" --store /ci-cache/ondol
  ondol store revoke --owner 3001 --before 2026-11-15 --store /ci-cache/ondol
  ondol store revoke --key 0123456789abcdef --store /ci-cache/ondol
  ondol store revoke --list; ondol store revoke --undo 5f0c2b7a91de"""


def main(arguments: list[str]) -> int:
    parsed = flags.parser("store revoke", _DESCRIPTION, _EXAMPLES).parse_args(arguments)
    asked = [f"--{name}" for name in (*revocations.KINDS, "list", "undo") if getattr(parsed, name)]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} at once; nothing was changed", hint="one of them")
    store = open_store(flags.settings(parsed))
    if parsed.list:
        return _list(store, parsed.json)
    try:
        if parsed.undo:
            revocations.undo(store.root_fd(), parsed.undo)
            output.say(f"{parsed.undo} counts no longer")
            return exitcodes.OK
        record = _record(parsed)
        if os.geteuid() not in (0, store.marker.owner):
            raise PermissionError(1, f"it belongs to uid {store.marker.owner}")
        record = record._replace(name=revocations.add(store.root_fd(), record))
    except OSError as error:
        hint = f"ondol store revoke --list --store {store.where}, as its owner or root"
        raise StoreError(f"nothing was changed in {store.where}", because=error.strerror or str(error), hint=hint)
    hit = _matching(store, record)
    if parsed.json:
        output.say_json("store-revoke", {**record._asdict(), "entries": hit})
    else:
        undo = f"ondol store revoke --undo {record.name} --store {store.where}"
        output.say(f"revoked: {record}; {words.entries(hit)} in the store now. Undo: {undo}")
    return exitcodes.OK


def _record(parsed: argparse.Namespace) -> revocations.Revocation:
    given = [(kind, value) for kind in revocations.KINDS if (value := getattr(parsed, kind))]
    if not given and not parsed.before:
        raise UsageError("nothing to revoke was named", hint="ondol store revoke --help")
    kind, value = given[0] if given else ("scope", "*")
    if kind == "owner" and not words.is_number(value):
        raise UsageError(f"--owner {value!r} is no UID", hint="ondol store ls shows owners")
    return revocations.Revocation(kind, value[:200], _time(parsed.before), parsed.why[:500], int(time.time()))


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return time.time() - words.parse_duration(text)
    except ValueError:
        pass  # not so long ago, but at that time
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--before {text!r} is no time", hint="2026-11-15, 2026-11-15T08:00 (UTC), or 2d")
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def _matching(store: DirectoryStore, record: revocations.Revocation) -> int:
    found = 0
    for stored in store.everything():
        try:
            found += bool(revocations.reason([record], stored, pack.inspect(store.fetch(stored), stored.address)))
        except (OSError, PackError):
            continue  # used by nobody anyway
    return found


def _list(store: DirectoryStore, as_json: bool) -> int:
    found = revocations.read(store.root_fd(), store.where, {0, os.geteuid(), store.marker.owner})
    if as_json:
        output.say_json("store-revocations", {"revocations": [record._asdict() for record in found]})
    for record in [] if as_json else found:
        output.say(words.printable(f"{record.name}  {time.strftime('%Y-%m-%d', time.gmtime(record.time))}  {record}"))
    return exitcodes.OK
