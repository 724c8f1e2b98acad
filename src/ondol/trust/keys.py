"""Whose signatures count, and where: the user's keys, the site's, and those of a store that is believed.

~/.config/ondol/keys/<name>.pub      ed25519:<base64> main,pr-* a comment
~/.config/ondol/keys/<name>.revoked  anything: this key never counts, whoever names it
/etc/ondol/keys/…                    the same, for everybody on the machine
"""

from __future__ import annotations

import os
import stat

from ondol.errors import OndolError
from ondol.host import files, identity
from ondol.light import Record
from ondol.store.marker import Key
from ondol.store.pack import key_name
from ondol.trust import signatures
from ondol.words import is_pattern, matches

SITE = "/etc/ondol/keys"
_MAX_BYTES = 4096


class Keyring(Record):
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
    """The key files of a directory, if it and they are ours or root's and nobody else can write them."""
    try:
        here = files.open_dir(folder)
    except OSError:
        return []
    found = []
    try:
        _check(folder, os.fstat(here))
        for name in files.list_names(here):
            if name.endswith((".pub", ".revoked")):
                data, status = files.read_regular(name, _MAX_BYTES, dir_fd=here)
                _check(f"{folder}/{name}", status)
                found.append((name, data.decode("utf-8", "replace")))
    except OSError as error:
        raise OndolError(f"the keys in {folder} cannot be read", because=error.strerror or str(error))
    finally:
        os.close(here)
    return found


def _check(path: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        because = f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"
        raise OndolError(f"{path} is not believed", because=because, hint=f"chown and chmod go-w {path}")
