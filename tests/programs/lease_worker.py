"""Takes a lease again and again and looks whether anybody else is inside; dies inside from time to time.

    lease_worker.py BASE MARKER ROUNDS SEED

MARKER is a file that does not exist, on a file system that shows everybody the same at once. Prints one line for each time it was inside: `ok`, or who was there too. Ends with status 0, or by SIGKILL.
"""

import os
import random
import signal
import sys
import time

from ondol.guard.lease import Lease
from ondol.host import files, process

base, marker, rounds, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
chance = random.Random(seed)


def enter():
    """Leave our name inside; or whose name was there, of somebody who is still alive."""
    while True:
        try:
            files.write_new(marker, process.myself().encode(), 0o600, sync=False)
            return ""
        except FileExistsError:
            pass
        try:
            owner = process.Owner.decode(files.read_regular(marker, 1000)[0])
        except FileNotFoundError:
            return "somebody who just left"
        if owner is None or not process.certainly_dead(owner):
            return f"not alone: {owner}"
        os.unlink(marker)  # died in here; nobody but the one inside may clean that up


for _ in range(rounds):
    lease = Lease(base)
    while not lease.attempt():
        time.sleep(chance.random() / 200)
    trouble = enter()
    print(trouble or "ok", flush=True)
    time.sleep(chance.random() / 500)
    if not trouble and chance.random() < 0.15:
        os.kill(os.getpid(), signal.SIGKILL)
    if not trouble:
        os.unlink(marker)
    lease.release()
