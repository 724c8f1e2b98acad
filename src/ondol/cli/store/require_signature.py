"""`ondol store require-signature SCOPE… [--off]`"""

from __future__ import annotations

from ondol import exitcodes
from ondol.cli import flags, output
from ondol.cli.store.init import parse_scopes
from ondol.jobs.store_location import location
from ondol.store import marker

_DESCRIPTION = """Let readers use only signed entries in these scopes, by keys that they, their site or it trusts.

For sites where all jobs have one UID, so that owners tell nothing. What is unsigned, or signed by an unknown or
revoked key, is a miss from now on. Without a scope: say which there are."""
_EXAMPLES = """\
  ondol store require-signature main --store /ci-cache/ondol
  ondol store require-signature main 'pr-*' --store /ci-cache/ondol
  ondol store require-signature main --off --store /ci-cache/ondol"""


def main(arguments: list[str]) -> int:
    made = flags.parser("store require-signature", _DESCRIPTION, _EXAMPLES)
    made.add_argument("scopes", nargs="*", metavar="SCOPE")
    parsed = made.parse_args(arguments)
    path, scopes = location(flags.settings(parsed)), parse_scopes(",".join(parsed.scopes))

    def change(found: marker.Marker) -> marker.Marker:
        kept = tuple(scope for scope in found.signed if scope not in scopes)
        return found._replace(signed=kept if parsed.off else (*kept, *scopes))

    found = marker.rewrite(path, change) if scopes else marker.look(path)
    if parsed.json:
        output.say_json("store-require-signature", {"store": path, "require_signature": found.signed})
    else:
        output.say(f"signatures are demanded in: {', '.join(found.signed) or 'no scope'}")
    return exitcodes.OK
