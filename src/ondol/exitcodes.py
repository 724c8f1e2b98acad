"""Ondol's exit statuses. They are public: scripts may rely on them.

`ondol run` ends with the command's own status; the numbers below appear only where Ondol itself has something to say,
and were chosen beside the shells' (126, 127, 128+n) and `timeout`'s (124) so that none of them means two things.
"""

OK = 0
#: `ondol store verify`: bits that add up, as in `nix store verify`.
VERIFY_CORRUPT = 1
VERIFY_UNREADABLE = 4
#: `ondol doctor`: errors were found (with `--strict`, warnings too).
DOCTOR_FOUND = 1
#: `ondol explain`: no known fault explains a failure in these logs.
NOTHING_KNOWN = 1
#: The command line or the configuration is wrong.
USAGE = 2
#: A store command could not do its work (no such store, not permitted, no such entry).
STORE = 3
#: `ondol test`: nothing failed, but some items were never run or lost their device.
INCOMPLETE = 121
#: `ondol test --session-timeout`: the run's deadline passed (as `timeout` says it).
SESSION_TIMEOUT = 124
#: `--require-warm`: the command succeeded and compiled something new.
NOT_WARM = 122
#: `--strict`: there was cache trouble, and the command itself succeeded or was not started.
STRICT = 123
#: An error in Ondol itself, outside any command (the `env`, `timeout`, `docker` convention).
INTERNAL = 125
#: The shells' convention for a command that cannot be executed, or is not there.
NOT_EXECUTABLE = 126
NOT_FOUND = 127


def from_signal(number: int) -> int:
    """A command killed by a signal, as a shell would report it."""
    return 128 + number


def cut_off(status: int) -> bool:
    """Whether a command seems to have been killed in the middle of its work, by a signal or by a time limit."""
    return status == SESSION_TIMEOUT or status > from_signal(0)
