"""Running the user's command where Ondol itself cannot run: an old Python, or parts of Ondol that are missing.

An image with Python 3.8 must be able to keep `ondol guard -- uv pip install …` in its script. So this module and
`__main__` are written for Python 3.6, and import nothing of ours.
"""

import os
import signal
import sys

_WITH_VALUE = frozenset(["--cache", "--wait", "--retries", "--heal", "--json"])


def split(arguments: "list[str]") -> "tuple[list[str], list[str]]":
    """The words of `ondol guard` and the command: after `--`, or from the first word that is no option of ours."""
    if "--" in arguments:
        position = arguments.index("--")
        return arguments[:position], arguments[position + 1 :]
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        position += 2 if arguments[position] in _WITH_VALUE else 1
    return arguments[:position], arguments[position:]


def become(command: "list[str]") -> int:
    """This process becomes the command. Returns only if that is impossible: the status, as shells have it."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # which Python ignores for itself
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"ondol: {command[0]}: {error.strerror}\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def instead(arguments: "list[str]", why: str) -> int:
    """What `ondol ARGUMENTS` does where Ondol cannot run: a guarded command runs all the same, anything else fails."""
    command = split(arguments[1:])[1] if arguments[:1] == ["guard"] else []
    if not command:
        sys.stderr.write(f"ondol: error: {why}\n")
        return 125
    sys.stderr.write(f"ondol: warning: the command runs unguarded: {why}\n")
    sys.stderr.flush()
    return become(command)
