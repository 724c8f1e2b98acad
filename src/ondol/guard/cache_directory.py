"""Which cache a command uses, when the user did not say: the tool itself is asked, because it knows its own rules."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from ondol.errors import UsageError
from ondol.guard.healing import HEALERS

_ANSWER = 20.0
_NONE = ("--no-cache", "--no-cache-dir")


def cache_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The cache directory of this command. Raises `UsageError` if that cannot be known, or it uses none."""
    for healer in HEALERS.values():
        question = healer.asks(argv)
        if not question:
            continue
        if any(word in _NONE for word in argv):
            raise UsageError(f"{argv[0]} is told to use no cache, so there is nothing to guard", hint=" ".join(argv))
        return _named(argv) or _asked(question, env) or healer.usual_place(env)
    raise UsageError(
        f"which cache does {argv[0]} use?",
        because="only uv and pip can be asked",
        hint="ondol guard --cache DIR -- COMMAND …",
    )


def _named(argv: Sequence[str]) -> str:
    """`--cache-dir DIR` or `--cache-dir=DIR`: uv and pip spell it alike."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--cache-dir":
            return os.path.abspath(following) if following else ""
        if word.startswith("--cache-dir="):
            return os.path.abspath(word.partition("=")[2])
    return ""


def _asked(question: list[str], env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            question, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stdout.decode("utf-8", "surrogateescape").strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines and os.path.isabs(lines[-1]) else ""
