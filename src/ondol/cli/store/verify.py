"""`ondol store verify`"""

from __future__ import annotations

from ondol import exitcodes, words
from ondol.cli import flags, output
from ondol.cli.store import parser
from ondol.jobs.open_store import open_store
from ondol.report.progress import Bar
from ondol.store import check

_DESCRIPTION = """Check every byte of every pack and set the bad ones aside (into their lane's quarantine folder).

A pack of another user that you may not move is reported and stays; it is never used. Exit status: 0 all good, 1
corrupt packs found, 4 packs that could not be read, 5 both, 3 no such store."""
_EXAMPLES = """\
  ondol store verify
  ondol store verify --store /ci-cache/ondol --keep       report only"""


def main(arguments: list[str]) -> int:
    made = parser("verify", _DESCRIPTION, _EXAMPLES)
    made.add_argument("--keep", action="store_true", help="report bad packs and leave them where they are")
    parsed = made.parse_args(arguments)
    store = open_store(flags.settings(parsed))
    with Bar() as bar:
        result = check.verify(store, lambda done, total: bar("verifying", done, total), keep=parsed.keep)
    kinds = {finding.kind for finding in result.findings}
    status = exitcodes.VERIFY_CORRUPT * ("corrupt" in kinds) + exitcodes.VERIFY_UNREADABLE * ("unreadable" in kinds)
    if parsed.as_json:
        findings = [{**f._asdict(), "stored": "/".join([f.stored.place, *f.stored.address])} for f in result.findings]
        output.say_json({"good": result.good, "good_bytes": result.good_bytes, "findings": findings})
        return status
    for finding in result.findings:
        aside = ", set aside" if finding.set_aside else ""
        place = "/".join([finding.stored.place, *finding.stored.address])
        output.say(f"{finding.kind}: {place} (owner {finding.stored.owner}): {finding.why}{aside}")
    bad = f", {len(result.findings)} bad" if result.findings else ", none bad"
    output.say(f"{words.entries(result.good)} good ({words.size(result.good_bytes)}){bad} in {store.where}")
    return status
