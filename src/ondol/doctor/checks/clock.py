"""The time of the file server against ours."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ondol import words
from ondol.doctor.api import WARNING, Check, Finding, look
from ondol.doctor.probing import corner
from ondol.doctor.subject import CACHE, STORE, Subject
from ondol.host import files

#: File systems keep times to a second or two, and servers may be slow to answer.
TOLERATED = 10.0


class Clock(Check):
    name = "clock"
    summary = "a file server whose clock is not this machine's, seen by the time of a new file"
    roles = frozenset({CACHE, STORE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        try:
            with corner(subject.real) as probe:
                path = os.path.join(probe, "now")
                before = time.time()
                files.write_new(path, b"now", 0o600, sync=False)
                after = time.time()
                theirs = os.stat(path).st_mtime
        except OSError:
            return  # nothing can be made there: other checks say so
        ahead = skew(before, after, theirs)
        if abs(ahead) > TOLERATED:
            direction = "ahead of" if ahead > 0 else "behind"
            what = f"the clock behind {subject.path} is {words.seconds(abs(ahead))} {direction} this machine's"
            why = "ninja builds again and again, entries look too old or too new to whoever cleans up by age"
            fix = "chronyc tracking || timedatectl timesync-status"
            yield Finding(self.name, WARNING, what, look(subject.path), why, fix)


def skew(before: float, after: float, theirs: float) -> float:
    """How far a time that was given between two of ours lies outside them; 0 if it does not."""
    if theirs > after:
        return theirs - after
    return min(theirs - before, 0.0)
