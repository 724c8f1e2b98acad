"""Whose work an entry is: what it tells of who made it, which makes a later revocation possible, and the key that signs
it, taken before the command starts and kept where the command cannot look.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from ondol import __version__
from ondol.errors import OndolError
from ondol.host import command, identity
from ondol.trust import ci


def provenance(env: Mapping[str, str]) -> dict[str, Any]:
    """Who made an entry, where, when and from which commit."""
    known: dict[str, Any] = {**ci.provenance(env)}
    if "commit" not in known:
        commit = command.asked(["git", "-C", identity.working_directory(), "rev-parse", "HEAD"], 5.0)
        if commit:
            known["commit"] = commit
    known |= {"host": identity.hostname(), "uid": os.geteuid(), "time": int(time.time()), "ondol": __version__}
    return known


def signer(source: str, env: dict[str, str], *, beside: bool) -> Callable[[bytes], bytes]:
    """What signs with this key. Raises `OndolError`; `beside`: also if a command that runs as our user could get it."""
    # Only now: a job without a key feels none of this.
    from ondol.host import secret
    from ondol.trust import keys

    try:
        return keys.signer(secret.take(source, env, beside=beside)).sign
    except ValueError as error:
        raise OndolError(f"--sign-key {source} is not a secret key", because=str(error), hint="ondol key new")
    except OndolError as error:
        raise OndolError(f"--sign-key {source}: {error.what}", because=error.because, hint=error.hint)


def seal() -> None:
    """Import the last of what publishing needs; from now on nothing that the command could write is imported.

    Call before the helper is forked that works beside the command: it has the key too, and on a busy machine its first
    step may come after the command's last.
    """
    import pickletools  # noqa: F401
    import subprocess  # noqa: F401
    import threading  # noqa: F401
    import traceback  # noqa: F401

    from ondol.host import secret
    from ondol.trust import keys  # noqa: F401

    secret.import_no_more()
