"""Whose signatures count, and where: the user's keys, the site's, and those of a store that is believed; and with that,
whether a pack may be used. Ed25519 by `cryptography`, which is an extra (`ondol[keys]`) and imported by whoever meets a
signature or makes one.

~/.config/ondol/keys/<name>.pub      ed25519:<base64> main,pr-* a comment; does not count on CI
~/.config/ondol/keys/<name>.revoked  anything: this key never counts, whoever names it
/etc/ondol/keys/…                    the same, for everybody on the machine

A key as people see it: `ondol-secret-ed25519:<base64>` is the secret one, `ed25519:<base64>` the public one.
"""

import base64
import os
from collections.abc import Callable
from typing import NamedTuple

from ondol.errors import EntryUntrusted, OndolError, PackError
from ondol.foreign_text import is_pattern, matches
from ondol.host import files, identity
from ondol.store import revocations
from ondol.store.api import Stored
from ondol.store.marker import Key, Marker
from ondol.store.pack import Manifest, key_name, statement
from ondol.trust import ci, settings

SITE = "/etc/ondol/keys"
_MAX_BYTES = 4096
PUBLIC = "ed25519:"
SECRET = "ondol-secret-ed25519:"
HINT = "pip install 'ondol[keys]'"


class Signer(NamedTuple):
    public: bytes
    #: (statement) → public key and signature
    sign: Callable[[bytes], bytes]


def show(public: bytes) -> str:
    return PUBLIC + base64.b64encode(public).decode()


def new() -> str:
    """A new secret key: 32 random bytes are all that Ed25519 asks for."""
    return SECRET + base64.b64encode(os.urandom(32)).decode()


def decode(text: str, prefix: str) -> bytes:
    """The 32 bytes of a key. Raises `ValueError`."""
    word = text.strip()
    raw = base64.b64decode(word.removeprefix(prefix), validate=True) if word.startswith(prefix) else b""
    if len(raw) != 32:
        raise ValueError(f"not of the form {prefix}<base64 of 32 bytes>")
    return raw


def verify(public: bytes, signature: bytes, statement: bytes) -> bool | None:
    """Whether the signature is good; None where `cryptography` is not installed."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def signer(secret: str) -> Signer:
    """Raises `ValueError` for what is no key, `OndolError` without `cryptography`."""
    seed = decode(secret, SECRET)
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise OndolError("signatures cannot be made", because="cryptography is not installed", hint=HINT)
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public = bytes(key.public_key().public_bytes_raw())
    return Signer(public, lambda statement: public + bytes(key.sign(statement)))


class Keyring(NamedTuple):
    #: (key, the file or the store that names it)
    trusted: tuple[tuple[Key, str], ...]
    #: Names of keys that never count.
    revoked: frozenset[str]

    def counts(self, public: bytes, scope: str) -> bool:
        shown = show(public)
        patterns = [pattern for key, _ in self.trusted if key.public == shown for pattern in key.scopes]
        return key_name(public) not in self.revoked and any(matches(scope, pattern) for pattern in patterns)


def parse(line: str) -> Key:
    """`ed25519:<base64> [SCOPES] [a comment]`. Raises `ValueError`."""
    words = line.split(None, 2)
    public, scopes, comment = words + ["", "*", ""][len(words) :]
    decode(public, PUBLIC)
    if not all(map(is_pattern, scopes.split(","))):
        raise ValueError(f"{scopes} are no scopes, such as main,pr-*")
    return Key(public, tuple(scopes.split(",")), comment.strip())


def name_of(key: Key) -> str:
    return key_name(decode(key.public, PUBLIC))


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
                raise OndolError(f"{folder}/{name} is not a public key", because=str(error), hint="mend or remove it")
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


class Vetting:
    """May this pack be used? Asked for every pack, after its digest and before it is unpacked.

    The owner of its lane has been judged already (`trust.owners`). Here: is its signature good; if one is demanded, is
    it by a key that counts; was it revoked.
    """

    def __init__(self, where: str, marker: Marker, believed: bool, revoked: tuple[revocations.Revocation, ...]) -> None:
        self._where = where
        self._marker = marker
        self._believed = believed
        self._revoked = revoked
        self._keyring: Keyring | None = None

    def keyring(self) -> Keyring:
        if self._keyring is None:
            self._keyring = load(self._marker.keys if self._believed else (), self._where)
        return self._keyring

    def __call__(self, stored: Stored, manifest: Manifest) -> None:
        """Raises `PackError` for a signature that is none, `EntryUntrusted` for what must not be used."""
        # A demand only narrows, so that of a marker which we do not believe counts too.
        demanded = self._marker.wants_signature(stored.address.scope)
        if manifest.public:
            self._check_signature(manifest, demanded)
        elif demanded:
            raise EntryUntrusted(
                "unsigned", hint=f"publish it again, with --sign-key; {self._where} demands signatures"
            )
        why = revocations.reason(self._revoked, stored, manifest)
        if why:
            raise EntryUntrusted(f"revoked: {why}", hint=f"ondol store revoke --list --store {self._where}")

    def _check_signature(self, manifest: Manifest, demanded: bool) -> None:
        address, public = manifest.address, manifest.public
        good = verify(public, manifest.signature, statement(address, manifest.digest, manifest.size))
        name = manifest.signer
        if good is False:
            raise PackError("pack with a bad signature", because=f"the key {name} did not sign this")
        if good is None and demanded:
            raise EntryUntrusted("its signature cannot be checked: no cryptography here", hint=HINT)
        if name in self.keyring().revoked:
            raise EntryUntrusted(f"signed by the revoked key {name}", hint="ondol key list")
        if demanded and not self.keyring().counts(public, address.scope):
            hint = f"ondol key trust {show(public)}, if it is yours"
            raise EntryUntrusted(f"signed by the key {name}, which is not trusted for {address.scope}", hint=hint)
