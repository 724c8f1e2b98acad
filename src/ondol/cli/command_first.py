"""The user's command comes first: it runs, and its status stands, whatever breaks on our side.

What breaks before the command is started costs the job its caches; what breaks after it costs a line of the report.
"""

import os
from collections.abc import Callable

from ondol import unguarded
from ondol.cli import output
from ondol.errors import OndolError, in_ourselves


def or_plainly(
    command: list[str], prepare: Callable[[], Callable[[], int]], *, forbidden: bool = False, secret: str = ""
) -> int:
    """What `prepare` returns runs the command. If preparing breaks, this process becomes the command itself.

    `forbidden`: the user asked for a job that does not run without its caches. `secret`: where the key is (`env:NAME`,
    `fd:N`) that the command must not get, also from us as we are then.
    """
    try:
        run = prepare()
    except Exception as error:
        if forbidden or isinstance(error, OndolError):  # a command line that makes no sense runs nothing
            raise
        output.tell(f"ondol: warning: running as without Ondol: {in_ourselves(error)}")
    else:
        return run()
    _drop(secret)
    return int(unguarded.become(command))


def afterwards(*steps: Callable[[], None]) -> None:
    """Something for people or programs to read, once the command is over."""
    for step in steps:
        try:
            step()
        except Exception as error:
            output.tell(f"ondol: warning: the report is not whole: {in_ourselves(error)}")


def _drop(secret: str) -> None:
    kind, _, name = secret.partition(":")
    if kind == "env":
        os.environ.pop(name, None)
    elif kind == "fd":
        try:
            os.close(int(name))
        except (OSError, ValueError):
            pass  # not open, or no number: then nothing is inherited
