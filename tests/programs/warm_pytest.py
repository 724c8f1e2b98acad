"""A Python that has imported pytest and Ondol, and becomes `python -m pytest …` as often as it is asked to.

    warm_pytest.py FD

forks a run for each question that comes over the socket `FD`, until that is closed. The run has its own process,
directory, environment, arguments, path and descriptors, no thread, and no module but those of pytest and Ondol.
"""

from __future__ import annotations

import array
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import sys

#: Tests find the processes of a run by this variable in /proc/PID/environ, which is what a process was executed with.
TAG, NO_TAG = "ONDOL_TEST_TAG", "0" * 32


def serve(control: socket.socket) -> None:
    """Returns in a run that is to begin; ends with the socket."""
    base = sys.path[1:]  # without the directory of this file
    while True:
        head, ancillary, _, _ = control.recvmsg(4, socket.CMSG_SPACE(8))
        if not head:
            sys.exit()
        descriptors = array.array("i", ancillary[0][2])
        asked = json.loads(control.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        if not os.fork():
            control.close()
            if not os.fork():
                os.close(descriptors[1])
                become(base, descriptors[0], *asked)
                return
            wait_for_it(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def wait_for_it(output: int, status: int) -> None:
    os.close(output)
    _, code, usage = os.wait4(-1, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(code)} {usage.ru_utime + usage.ru_stime}".encode())
    os._exit(0)


def become(base: list[str], output: int, arguments: list[str], cwd: str, environment: dict[str, str]) -> None:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    write_tag(environment.get(TAG, NO_TAG))
    sys.path[:] = [cwd, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *base]
    sys.argv = ["pytest", *arguments]


def write_tag(tag: str) -> None:
    """Into /proc/self/environ, too: where it lies in memory, `execve` has put it."""
    with open("/proc/self/environ", "rb") as file:
        place = file.read().index(f"{TAG}={NO_TAG}".encode()) + len(TAG) + 1
    with open("/proc/self/stat") as stat:
        start = int(stat.read().rpartition(")")[2].split()[47])  # env_start, the 50th of all fields
    ctypes.memmove(start + place, tag.encode(), len(NO_TAG))


def main() -> None:
    import pytest  # noqa: F401
    from _pytest.config import default_plugins

    for name in [*(f"_pytest.{plugin}" for plugin in default_plugins), "ondol.pytest_runner"]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
