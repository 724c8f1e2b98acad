"""Looks whether anybody else is here: `alone.py MARKER` prints `alone` or `not alone`. MARKER is a file that is not there."""

import os
import sys
import time

try:
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_EXCL, 0o600))
except FileExistsError:
    print("not alone")
else:
    time.sleep(0.05)  # long enough for somebody who can come in to do so
    os.unlink(sys.argv[1])
    print("alone")
