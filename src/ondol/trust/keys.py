"""Whose signatures count, and where: the user's keys, the site's, and those of a store that is believed.

~/.config/ondol/keys/<name>.pub      ed25519:<base64> main,pr-* a comment; does not count on CI
~/.config/ondol/keys/<name>.revoked  anything: this key never counts, whoever names it
/etc/ondol/keys/…                    the same, for everybody on the machine
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ondol.errors import OndolError
from ondol.host import files, identity
from ondol.store.marker import Key
from ondol.store.pack import key_name
from ondol.trust import ci, settings, signatures
from ondol.words import is_pattern, matches

SITE = "/etc/ondol/keys"
_MAX_BYTES = 4096


class Keyring(NamedTuple):
    #: (key, the file or the store that names it)
    trusted: tuple[tuple[Key, str], ...]
    #: Names of keys that never count.
    revoked: frozenset[str]

    def counts(self, public: bytes, scope: str) -> bool:
        shown = signatures.show(public)
        patterns = [pattern for key, _ in self.trusted if key.public == shown for pattern in key.scopes]
        return key_name(public) not in self.revoked and any(matches(scope, pattern) for pattern in patterns)


def parse(line: str) -> Key:
    """`ed25519:<base64> [SCOPES] [a comment]`. Raises `ValueError`."""
    words = line.split(None, 2)
    public, scopes, comment = words + ["", "*", ""][len(words) :]
    signatures.decode(public, signatures.PUBLIC)
    if not all(map(is_pattern, scopes.split(","))):
        raise ValueError(f"{scopes} are no scopes, such as main,pr-*")
    return Key(public, tuple(scopes.split(",")), comment.strip())


def name_of(key: Key) -> str:
    return key_name(signatures.decode(key.public, signatures.PUBLIC))


def user_folder() -> str:
    return os.path.join(identity.user_config_dir(), "ondol", "keys")


def load(of_store: tuple[Key, ...] = (), where: str = "") -> Keyring:
    """All keys that count here. `of_store`: those of a marker that is believed. Raises `OndolError`."""
    trusted = [(key, where) for key in of_store]
    revoked: set[str] = set()
    for folder in (user_folder(), SITE):
        for name, text in _read(folder):
            if name.endswith(".revoked"):
                revoked.add(name.removesuffix(".revoked"))
                continue
            try:
                trusted.append((parse(text), f"{folder}/{name}"))
            except ValueError as error:
                raise OndolError(f"{folder}/{name} is no key", because=str(error), hint="mend or remove it")
    return Keyring(tuple(trusted), frozenset(revoked))


def _read(folder: str) -> list[tuple[str, str]]:
    """The key files of a directory, if they are ours or root's and nobody else can write them, or the way to them."""
    if folder != SITE and ci.on_ci(os.environ):
        return []  # what one job's user may write, a stranger's job of the same user has written
    found = []
    try:
        here = files.open_dir(folder)
    except OSError:
        return []
    try:
        for name in files.list_names(here):
            if name.endswith((".pub", ".revoked")):
                data, status = files.read_regular(name, _MAX_BYTES, dir_fd=here)
                settings.check_owners(f"{folder}/{name}", status)
                found.append((name, data.decode("utf-8", "replace")))
    except (OSError, settings.Unusable) as error:
        raise OndolError(f"the keys in {folder} are not believed", because=str(error))
    finally:
        os.close(here)
    return found
