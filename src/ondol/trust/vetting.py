"""May this pack be used? Asked for every pack, after its digest and before it is unpacked.

The owner of its lane has been judged already (`trust.owners`). Here: is its signature good; if one is demanded, is it
by a key that counts; was it revoked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ondol.errors import EntryUntrusted, PackError
from ondol.store import revocations
from ondol.store.api import Stored
from ondol.store.marker import Marker

if TYPE_CHECKING:
    from ondol.store.pack import Manifest
    from ondol.trust.keys import Keyring


class Vetting:
    def __init__(self, where: str, marker: Marker, believed: bool, revoked: tuple[revocations.Revocation, ...]) -> None:
        self._where = where
        self._marker = marker
        self._believed = believed
        self._revoked = revoked
        self._keyring: Keyring | None = None

    def keyring(self) -> Keyring:
        if self._keyring is None:
            from ondol.trust import keys

            self._keyring = keys.load(self._marker.keys if self._believed else (), self._where)
        return self._keyring

    def __call__(self, stored: Stored, manifest: Manifest) -> None:
        """Raises `PackError` for a signature that is none, `EntryUntrusted` for what must not be used."""
        # A demand only narrows, so that of a marker which we do not believe counts too.
        demanded = self._marker.wants_signature(stored.address.scope)
        if manifest.seal.public:
            self._check_signature(manifest, demanded)
        elif demanded:
            raise EntryUntrusted(
                "unsigned", hint=f"publish it again, with --sign-key; {self._where} demands signatures"
            )
        why = revocations.reason(self._revoked, stored, manifest)
        if why:
            raise EntryUntrusted(f"revoked: {why}", hint=f"ondol store revoke --list --store {self._where}")

    def _check_signature(self, manifest: Manifest, demanded: bool) -> None:
        from ondol.store.pack import statement
        from ondol.trust import signatures

        address, seal = manifest.address, manifest.seal
        good = signatures.verify(seal.public, seal.signature, statement(address, seal.digest, seal.size))
        name = manifest.signer
        if good is False:
            raise PackError("pack with a bad signature", because=f"the key {name} did not sign this")
        if good is None and demanded:
            raise EntryUntrusted("its signature cannot be checked: no cryptography here", hint=signatures.HINT)
        if name in self.keyring().revoked:
            raise EntryUntrusted(f"signed by the revoked key {name}", hint="ondol key list")
        if demanded and not self.keyring().counts(seal.public, address.scope):
            hint = f"ondol key trust {signatures.show(seal.public)}, if it is yours"
            raise EntryUntrusted(f"signed by the key {name}, which is not trusted for {address.scope}", hint=hint)
