"""What CI systems and terminals wrap around a line of output, and taking it off again. Pure.

A pattern is searched anywhere in a line, so a timestamp in front does no harm to matching. Escape sequences do, because
they stand inside words; and whoever looks at the shape of a line (`____ test_x ____`) needs its true beginning.
"""

import re

#: Colours and cursor movements; titles, links and Buildkite's timestamps (OSC, APC strings); the rest of a cut one.
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|[\]_P^][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x1b")

_PREFIX = re.compile(
    r"""(?:
      \ufeff                                                         # GitHub's downloaded logs begin with it
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?             # GitHub, Jenkins; GitLab's stream after it
      (?:Z|[+-]\d\d:?\d\d)?\]?[ ]?(?:\d\d[OE][+ ])?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?[ ]
    | section_(?:start|end):\d+:[\w.\-\[\]=]*\r                      # GitLab's folding
    | \#\d+[ ]\d+\.\d+[ ]                                            # BuildKit: step and seconds
    | (?:\[gw\d+\]|gw\d+[ ]\|)[ ]                                    # xdist
    | [\w.\-]{1,60}[ ]*\|[ ]                                         # docker compose, foreman
    | \d{1,5}:[ ]                                                    # srun -l
    | [EWI]\d{4}[ ]\d\d:\d\d:\d\d\.\d+[ ]+\d+[ ]\S+\][ ]              # glog, torch's logging
    | (?:\[rank\d+\]:|\(\w+[ ]pid=\d+\))[ ]                          # torchrun, vLLM, Ray
    )""",
    re.VERBOSE,
)
_PYTEST = re.compile(r"[E>](?: {3,}|$)")


def without_escapes(text: str) -> str:
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def without_prefix(line: str) -> str:
    """The line as its program wrote it: without timestamps, step names and worker names in front."""
    for _ in range(4):  # GitHub's timestamp before compose's name before xdist's worker
        found = _PREFIX.match(line)
        if not found or found.end() == 0:
            break
        line = line[found.end() :]
    return line


def is_source(line: str) -> bool:
    """Whether a line of a traceback is a line of the program: it may hold any message, and nobody printed it."""
    return without_prefix(line).startswith(("    ", ">"))


def bare(line: str) -> str:
    """Also without pytest's margin (`E   `) and the spaces around; for showing a line as evidence."""
    line = without_prefix(line).strip()
    found = _PYTEST.match(line)
    return line[found.end() :].strip() if found else line
