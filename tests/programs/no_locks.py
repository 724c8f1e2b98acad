"""Runs Ondol on a machine whose file systems have no locks: the calls that would lock fail with the given error.

no_locks.py ERRNO ARGUMENTS…
"""

import errno
import fcntl
import os
import sys

number = int(sys.argv[1]) if sys.argv[1].isdigit() else getattr(errno, sys.argv[1])


def refuse(*_):
    raise OSError(number, os.strerror(number))


fcntl.flock = refuse

from ondol.cli.main import main  # noqa: E402

sys.exit(main(sys.argv[2:]))
