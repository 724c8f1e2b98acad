"""A command whose output passes through us, so that a failure can be judged by its end."""

import time
from collections.abc import Callable, Mapping, Sequence

from ondol.guard.holder import Holder, command_line
from ondol.host import command, identity, process
from ondol.host.relay import Relay
from ondol.trust import ci

#: How much of the output's end is looked at after a failure.
_TAIL = 256 << 10


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    on_end: Callable[[command.CommandEnded], None],
    warn: Callable[[str], None],
    *,
    through: Sequence[str] = (),
) -> bytes:
    """Run it; returns the end of what it wrote, empty if that could not be watched."""
    try:
        relay = Relay(_TAIL)
    except OSError as error:  # no more processes, descriptors or terminals for us; the command may need fewer
        warn(f"the output cannot be watched, so nothing is healed: {error.strerror}")
        command.run(argv, env, on_end, through=through)
        return b""
    command.run(argv, env, on_end, through=through, streams=relay.streams)
    return relay.finish()


def holder(argv: Sequence[str], env: Mapping[str, str]) -> Holder:
    """What others read of us while we hold a cache's lock."""
    return Holder(process.myself(), identity.hostname(), time.time(), command_line(list(argv)), ci.job_name(env))
