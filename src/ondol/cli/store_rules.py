"""`ondol store init | writers | require-signature | revoke`: whose entries readers use."""

import argparse
import os
import time
from datetime import datetime, timezone

from ondol import units
from ondol.cli import flags, output
from ondol.errors import PackError, StoreError, UsageError
from ondol.foreign_text import is_number, is_pattern
from ondol.jobs import open_store
from ondol.jobs.open_store import location
from ondol.store import marker, pack, revocations
from ondol.store.directory import DirectoryStore


@flags.command(
    "store init",
    """Make a store at PATH.

Any user may add entries, in a lane of their own. Whose entries *others* use is decided here, once: without
--writers a reader uses its own and root's only. The list is believed by readers who trust the owner of the store:
root, themselves, or a UID they name with --trust.""",
    """\
  ondol store init /ci-cache/ondol --writers 1000,alice
  ondol store init /ci-cache/ondol --writers @ci          all members of the group ci
  ondol store init /ci-cache/ondol --writers 1000,3001:pr-* --require-signature main
                                                          uid 3001, who runs pull requests, can write their scopes only
  ondol store init ~/shared --writers any                 everybody trusts everybody: single-tenant machines only""",
    path={"metavar": "PATH"},
)
def init(parsed: argparse.Namespace) -> None:
    path = os.path.abspath(parsed.path)
    named, signed = _writers(parsed.writers), _scopes(parsed.require_signature)
    if not open_store.make(path, named, shared=True, signed=signed):
        raise StoreError(
            f"there is a store at {path} already",
            note="nothing was changed",
            hint=f"ondol store stats --store {path}; to change its writers: ondol store writers --help",
        )
    told = f"store made at {path}; publishing for everybody: {named}"
    output.answer("store-init", {"store": path, "writers": named.kinds()}, [told], as_json=parsed.json)


def _writers(text: str, *, known: bool = False) -> marker.Writers:
    try:
        return marker.parse_writers(text, known=known)
    except ValueError as error:
        raise UsageError(
            f"writers: {error.args[0]!r} {error.args[1]}",
            note="nothing was changed",
            hint="such as 1000,alice,@ci,3001:pr-* or any",
        )


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    for scope in scopes:
        if not is_pattern(scope):
            raise UsageError(f"{scope!r} is no scope", note="nothing was changed", hint="such as main or pr-*")
    return scopes


@flags.command(
    "store writers",
    """Who may publish for everybody, and in which scopes.

Readers use an entry of another user only if the store names its owner for that scope. The list is replaced as a whole:
running jobs see the old one or the new one. `remove` without a scope takes all of somebody's scopes away.""",
    """\
  ondol store writers list --store /ci-cache/ondol
  ondol store writers add 3001:pr-* --store /ci-cache/ondol      uid 3001 can write pull requests' scopes only
  ondol store writers add @ci:main alice --store /ci-cache/ondol
  ondol store writers remove 3001 --store /ci-cache/ondol""",
    action={"choices": ("list", "add", "remove")},
    who={"nargs": "*", "metavar": "WHO[:SCOPE]", "help": "UIDs, users, @GROUPs, any; with :SCOPE only there"},
)
def writers(parsed: argparse.Namespace) -> None:
    if bool(parsed.who) == (parsed.action == "list"):
        needs = "takes no names" if parsed.who else "needs a name"
        raise UsageError(f"`ondol store writers {parsed.action}` {needs}", hint="ondol store writers --help")
    path, given = location(flags.settings(parsed)), ",".join(parsed.who)

    def change(found: marker.Marker) -> marker.Marker:
        named = _writers(given, known=parsed.action == "remove")
        if parsed.action == "add":
            return found._replace(writers=found.writers + named)
        for word in named.words:
            if found.writers - _writers(word, known=True) == found.writers:
                raise UsageError(f"{word} is not among the writers of {path}", because=f"they are: {found.writers}")
        return found._replace(writers=found.writers - named)

    found = marker.look(path) if parsed.action == "list" else marker.rewrite(path, change)
    lines = [f"publishing for everybody: {found.writers}"]
    if parsed.action == "list":
        lines = list(found.writers.words) or ["no writers: each user reads only its own entries and root's"]
    facts = {"store": path, "writers": found.writers.words, "said_by": found.owner}
    output.answer("store-writers", facts, lines, as_json=parsed.json)


@flags.command(
    "store require-signature",
    """Let readers use only signed entries in these scopes, by keys that they, their site or it trusts.

For sites where all jobs have one UID, so that owners tell nothing. What is unsigned, or signed by an unknown or
revoked key, is a miss from now on. Without a scope: say which there are.""",
    """\
  ondol store require-signature main --store /ci-cache/ondol
  ondol store require-signature main 'pr-*' --store /ci-cache/ondol
  ondol store require-signature main --off --store /ci-cache/ondol""",
    scopes={"nargs": "*", "metavar": "SCOPE"},
)
def require_signature(parsed: argparse.Namespace) -> None:
    path, scopes = location(flags.settings(parsed)), _scopes(",".join(parsed.scopes))

    def change(found: marker.Marker) -> marker.Marker:
        kept = tuple(scope for scope in found.signed if scope not in scopes)
        return found._replace(signed=kept if parsed.off else (*kept, *scopes))

    found = marker.rewrite(path, change) if scopes else marker.look(path)
    told = f"signatures are demanded in: {', '.join(found.signed) or 'no scope'}"
    facts = {"store": path, "require_signature": found.signed}
    output.answer("store-require-signature", facts, [told], as_json=parsed.json)


@flags.command(
    "store revoke",
    """Take entries back: no reader uses them from now on. Nothing is removed; --undo takes the word back.

For the owner of the store, and root. Owner, scope, key and entry are evidence; run, commit and --before are what the
maker of an entry said of itself: enough after a mishap, not against somebody who lies.""",
    """\
  ondol store revoke --run 7315 --why "bad compiler image" --store /ci-cache/ondol
  ondol store revoke --owner 3001 --before 2026-11-15 --store /ci-cache/ondol
  ondol store revoke --key 0123456789abcdef --store /ci-cache/ondol
  ondol store revoke --list; ondol store revoke --undo 5f0c2b7a91de""",
)
def revoke(parsed: argparse.Namespace) -> None:
    asked = [f"--{name}" for name in (*revocations.KINDS, "list", "undo") if getattr(parsed, name)]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} at once; nothing was changed", hint="one of them")
    store = open_store.open_store(flags.settings(parsed))
    if parsed.list:
        found = revocations.read(store.root_fd(), store.where, {0, os.geteuid(), store.marker.owner})
        facts = {"revocations": [record._asdict() for record in found]}
        output.answer("store-revocations", facts, map(_line, found), as_json=parsed.json)
        return
    try:
        if parsed.undo:
            revocations.undo(store.root_fd(), parsed.undo)
            output.say(f"{parsed.undo} counts no longer")
            return
        record = _revocation(parsed)
        if os.geteuid() not in (0, store.marker.owner):
            raise PermissionError(1, f"it belongs to uid {store.marker.owner}")
        record = record._replace(name=revocations.add(store.root_fd(), record))
    except OSError as error:
        hint = f"ondol store revoke --list --store {store.where}, as its owner or root"
        raise StoreError(f"nothing was changed in {store.where}", because=error.strerror or str(error), hint=hint)
    hit = _matching(store, record)
    undo = f"ondol store revoke --undo {record.name} --store {store.where}"
    told = f"revoked: {record}; {units.entries(hit)} in the store now. Undo: {undo}"
    output.answer("store-revoke", {**record._asdict(), "entries": hit}, [told], as_json=parsed.json)


def _line(record: revocations.Revocation) -> str:
    return f"{record.name}  {time.strftime('%Y-%m-%d', time.gmtime(record.time))}  {record}"


def _revocation(parsed: argparse.Namespace) -> revocations.Revocation:
    given = [(kind, value) for kind in revocations.KINDS if (value := getattr(parsed, kind))]
    if not given and not parsed.before:
        raise UsageError("nothing to revoke was named", hint="ondol store revoke --help")
    kind, value = given[0] if given else ("scope", "*")
    if kind == "owner" and not is_number(value):
        raise UsageError(f"--owner {value!r} is no UID", hint="ondol store ls shows owners")
    return revocations.Revocation(kind, value[:200], _time(parsed.before), parsed.why[:500], int(time.time()))


def _time(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return time.time() - units.parse_duration(text)
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
