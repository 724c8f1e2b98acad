"""`ondol store verify`"""

from __future__ import annotations

import os

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.jobs.open_store import open_store
from ondol.jobs.store_location import location
from ondol.report.progress import Bar
from ondol.store import believed, check

_DESCRIPTION = """Check every byte of every pack and set the bad ones aside (into their lane's quarantine folder).

A pack of another user that you may not move is reported and stays; it is never used. Packs that readers pass over,
because others can write them, are counted, with the command that mends them. Exit status: 0 all good, 1 corrupt packs
found, 4 packs that could not be read or that readers pass over, 5 both, 3 no such store."""
_EXAMPLES = """\
  ondol store verify
  ondol store verify --store /ci-cache/ondol --keep       report only"""


def main(arguments: list[str]) -> int:
    made = flags.parser("store verify", _DESCRIPTION, _EXAMPLES)
    parsed = made.parse_args(arguments)
    settings = flags.settings(parsed)
    where = location(settings)
    # First of all: a store whose own directory was opened with all that is in it is refused as a whole.
    passed = believed.look(where).lines(where, os.geteuid())
    if not parsed.json:
        for what, command in passed:
            output.say(what)
            output.say(f"  fix: {command}")
    store = open_store(settings)
    with Bar() as bar:
        result = check.verify(store, lambda done, total: bar("verifying", done, total), keep=parsed.keep)
    kinds = {finding.kind for finding in result.findings}
    unread = bool(passed) or "unreadable" in kinds
    status = exitcodes.VERIFY_CORRUPT * ("corrupt" in kinds) + exitcodes.VERIFY_UNREADABLE * unread
    if parsed.json:
        findings = [{**f._asdict(), "stored": "/".join([f.stored.place, *f.stored.address])} for f in result.findings]
        over = [{"what": what, "fix": command} for what, command in passed]
        counted = {"good": result.good, "good_bytes": result.good_bytes}
        output.say_json("store-verify", {**counted, "findings": findings, "passed_over": over})
        return status
    for finding in result.findings:
        aside = ", set aside" if finding.set_aside else ""
        place = "/".join([finding.stored.place, *finding.stored.address])
        output.say(f"{finding.kind}: {place} (owner {finding.stored.owner}): {finding.why}{aside}")
    bad = f", {len(result.findings)} bad" if result.findings else ", none bad"
    output.say(f"{words.entries(result.good)} good ({words.size(result.good_bytes)}){bad} in {store.where}")
    return status
