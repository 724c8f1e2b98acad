"""Ed25519 by `cryptography`, which is an extra (`ondol[keys]`) and imported by whoever meets a signature or makes one.

A key as people see it: `ondol-secret-ed25519:<base64>` is the secret one, `ed25519:<base64>` the public one.
"""

import base64
import os
from collections.abc import Callable
from typing import NamedTuple

from ondol.errors import OndolError

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
