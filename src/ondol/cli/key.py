"""`ondol key new | show | trust | list | revoke`"""

import argparse
import os
import sys
from typing import Any

from ondol.cli import flags, output
from ondol.errors import OndolError, UsageError
from ondol.host import files
from ondol.jobs.open_store import location
from ondol.store import marker
from ondol.store.pack import key_name
from ondol.trust import keys


def _new(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    secret = keys.new()
    if parsed.what == "-":
        return [{"secret": secret, "public": keys.show(keys.signer(secret).public)}]
    try:
        files.write_new(parsed.what, secret.encode() + b"\n", 0o600, sync=True)
    except OSError as error:
        raise UsageError(f"{parsed.what} was not written", because=error.strerror or "", hint="name a new file, or -")
    return _show(parsed)


def _show(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    try:
        text = sys.stdin.readline() if parsed.what == "-" else files.read_regular(parsed.what, 4096)[0].decode()
        public = keys.signer(text).public
    except (OSError, ValueError) as error:
        raise UsageError(f"{parsed.what} holds no key", because=str(error), hint="ondol key new FILE")
    return [{"public": keys.show(public), "name": key_name(public)}]


def _trust(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    line = f"{parsed.what} {parsed.scopes} {parsed.comment}"
    try:
        key = keys.parse(line)
    except ValueError as error:
        raise UsageError(f"{parsed.what!r} is no public key", because=str(error), hint="ondol key show FILE")
    if vars(parsed)["for"] == "store":
        where = location(flags.settings(parsed))

        def add(found: marker.Marker) -> marker.Marker:
            return found._replace(keys=(*(known for known in found.keys if known.public != key.public), key))

        marker.rewrite(where, add)
    else:
        where = _put(vars(parsed)["for"], f"{keys.name_of(key)}.pub", line)
    return [{"trusted": key.public, "name": keys.name_of(key), "scopes": ",".join(key.scopes), "where": where}]


def _put(whom: str, name: str, text: str) -> str:
    folder = keys.SITE if whom == "site" else keys.user_folder()
    try:
        os.makedirs(folder, 0o755, exist_ok=True)
        files.write_whole(os.path.join(folder, name), text.encode() + b"\n", 0o644, sync=True)
    except OSError as error:
        raise OndolError(f"{folder}/{name} was not written", because=error.strerror or "", hint="sudo, for --for site")
    return os.path.join(folder, name)


def _revoke(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    if vars(parsed)["for"] == "store":
        raise UsageError("a store revokes by another command", hint=f"ondol store revoke --key {parsed.what}")
    try:
        name = key_name(keys.decode(parsed.what, keys.PUBLIC))
    except ValueError:
        name = parsed.what
    if len(name) != 16 or not set(name) <= set("0123456789abcdef"):
        raise UsageError(f"{parsed.what!r} is neither a public key nor a key's name", hint="ondol key list")
    return [{"revoked": name, "where": _put(vars(parsed)["for"], f"{name}.revoked", parsed.comment)}]


def _list(parsed: argparse.Namespace) -> list[dict[str, Any]]:
    where = location(flags.settings(parsed))
    found = keys.load(marker.look(where).keys if os.path.isdir(where) else (), where)
    return [
        {"name": keys.name_of(key), **key._asdict(), "where": place, "revoked": keys.name_of(key) in found.revoked}
        for key, place in found.trusted
    ]


_ACTIONS = {"new": _new, "show": _show, "trust": _trust, "list": _list, "revoke": _revoke}


@flags.command(
    "key",
    """Keys for stores that take signed entries only (ondol store require-signature).

  new FILE         make a key; the secret goes to FILE, or with `-` to standard output: into your CI system's secrets
  show FILE        the public key of a secret one (`-`: from standard input)
  trust KEY        let signatures of this public key count: for you, the site (/etc/ondol/keys), or a store's readers
  list             the keys that count here
  revoke KEY       let a key, by its name or itself, never count again, for you or the site; for a store's readers:
                   ondol store revoke --key NAME""",
    """\
  ondol key new nightly.key
  ondol key trust ed25519:… --scopes main --for store --store /ci-cache/ondol
  ondol store require-signature main --store /ci-cache/ondol
  ondol run --sign-key fd:3 -- pytest 3< <(sudo cat /etc/ci/nightly.key)
  ondol key revoke 0123456789abcdef""",
    action={"choices": tuple(_ACTIONS)},
    what={"nargs": "?", "metavar": "FILE|KEY"},
)
def main(parsed: argparse.Namespace) -> None:
    if bool(parsed.what) == (parsed.action == "list"):
        needs = "no" if parsed.what else "a"
        raise UsageError(f"`ondol key {parsed.action}` needs {needs} FILE or KEY", hint="ondol key --help")
    facts = _ACTIONS[parsed.action](parsed)
    told = {"keys": facts} if parsed.action == "list" else facts[0]
    lines = ["  ".join(f"{name} {value}" for name, value in fact.items()) for fact in facts]
    output.answer(f"key-{parsed.action}", told, lines, as_json=parsed.json)
    if not facts:
        output.tell("no keys count here")
