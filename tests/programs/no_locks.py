"""Runs Ondol on a machine whose file systems have no locks: the calls that would lock fail with the given error.

    no_locks.py ERRNO KINDS ARGUMENTS…        KINDS: flock, fcntl or flock,fcntl

For fcntl, which strace cannot fail for locks alone.
"""

import errno
import fcntl
import os
import sys

number = int(sys.argv[1]) if sys.argv[1].isdigit() else getattr(errno, sys.argv[1])
kinds = sys.argv[2].split(",")
real = fcntl.fcntl


def refuse(*_):
    raise OSError(number, os.strerror(number))


def fcntl_without_locks(fd, command, argument=0):
    return refuse() if command == fcntl.F_OFD_SETLK else real(fd, command, argument)


if "flock" in kinds:
    fcntl.flock = refuse
if "fcntl" in kinds:
    fcntl.fcntl, fcntl.lockf = fcntl_without_locks, refuse

from ondol.cli.main import main  # noqa: E402

sys.exit(main(sys.argv[3:]))
