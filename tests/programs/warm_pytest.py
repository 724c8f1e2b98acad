"""A Python that has imported pytest and Ondol, and becomes `python -m pytest …` or `python -m ondol …` when asked to.

    warm_pytest.py FD NAME …

forks a run for each question that comes over the socket `FD`, until that is closed. The run has its own process,
directory, environment, arguments, path and descriptors, no thread, and no module but those of pytest and Ondol.
`NAME …` is how variables begin that are read when a Python starts.

`ondol test` starts a pytest. The first one is a fork, too, of what was here before Ondol did anything.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

#: Tests find the processes of a run by this variable in /proc/PID/environ, which is what a process was executed with.
TAG, NO_TAG = "ONDOL_TEST_TAG", "0" * 32
#: What `ondol test` imports when it needs it.
LATER = ("ondol.cli.test", "ondol.report.terminal", "platform", "zstandard")


def serve(control: socket.socket) -> str:
    """Returns in a run that is to begin, what it is to be; ends with the socket."""
    base = sys.path[1:]  # without the directory of this file
    while True:
        asked, descriptors = receive(control)
        if asked is None:
            sys.exit()
        if not os.fork():
            control.close()
            if not os.fork():
                os.close(descriptors[1])
                return begin(base, descriptors[0], *asked)
            wait_for_it(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass


def send(control: socket.socket, message: object, descriptors: list[int]) -> None:
    asked = json.dumps(message).encode()
    socket.send_fds(control, [len(asked).to_bytes(4, "big")], descriptors)
    control.sendall(asked)


def receive(control: socket.socket) -> tuple[Any, list[int]]:
    """None: nobody can ask any more."""
    head, descriptors, _, _ = socket.recv_fds(control, 4, 2)
    if not head:
        return None, []
    return json.loads(control.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)), descriptors


def wait_for_it(output: int, status: int) -> None:
    os.close(output)
    _, code, usage = os.wait4(-1, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(code)} {usage.ru_utime + usage.ru_stime}".encode())
    os._exit(0)


def begin(
    base: list[str], output: int, module: str, arguments: list[str], cwd: str, environment: dict[str, str]
) -> str:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(cwd)
    write_tag(environment.get(TAG, NO_TAG))
    become(base, module, arguments, environment)
    return with_a_pytest(base) if module == "ondol" else module


def become(base: list[str], module: str, arguments: list[str], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = [os.getcwd(), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *base]
    sys.argv = [module, *arguments]


def with_a_pytest(base: list[str]) -> str:
    """Returns in `ondol test`, and in its child when that is to be pytest: what each is."""
    ours, theirs = socket.socketpair()
    if pid := os.fork():
        theirs.close()
        importlib.import_module("ondol.test_jobs.run_tests").subprocess = Starts(pid, ours)  # type: ignore[attr-defined]
        return "ondol"
    ours.close()
    asked, descriptors = receive(theirs)
    if asked is None:
        os._exit(0)
    theirs.close()
    arguments, environment, number = asked
    if descriptors[0] != number:
        os.dup2(descriptors[0], number)
        os.close(descriptors[0])
    os.set_inheritable(number, True)
    become(base, "pytest", arguments, environment)
    return "pytest"


class Starts:
    """What `ondol test` has for `subprocess`: it starts the child that waits, once, and everything else for real."""

    def __init__(self, pid: int, waits: socket.socket) -> None:
        self.pid, self.waits = pid, waits
        self.early = early(os.environ)

    def Popen(self, words: list[str], env: dict[str, str], pass_fds: tuple[int]) -> Any:
        if words[1:3] == ["-m", "pytest"] and early(env) == self.early and self.waits.fileno() >= 0:
            send(self.waits, [words[3:], env, *pass_fds], [*pass_fds])
            self.waits.close()
            return SimpleNamespace(pid=self.pid, returncode=None)
        self.waits.close()
        return subprocess.Popen(words, env=env, pass_fds=pass_fds)


def early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in environment if name.startswith(EARLY)}


def write_tag(tag: str) -> None:
    """Into /proc/self/environ, too: where it lies in memory, `execve` has put it."""
    with open("/proc/self/environ", "rb") as file:
        place = file.read().index(f"{TAG}={NO_TAG}".encode()) + len(TAG) + 1
    with open("/proc/self/stat") as stat:
        start = int(stat.read().rpartition(")")[2].split()[47])  # env_start, the 50th of all fields
    ctypes.memmove(start + place, tag.encode(), len(NO_TAG))


def load() -> None:
    import pytest  # noqa: F401
    from _pytest.config import default_plugins

    import ondol.tools

    tools = (module.name for module in pkgutil.iter_modules(ondol.tools.__path__, "ondol.tools."))
    for name in [*(f"_pytest.{plugin}" for plugin in default_plugins), "ondol.pytest_runner", *LATER, *tools]:
        importlib.import_module(name)


if __name__ == "__main__":
    EARLY = tuple(sys.argv[2:])
    load()
    gc.collect()
    gc.freeze()
    module = serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(module, run_name="__main__", alter_sys=True)
