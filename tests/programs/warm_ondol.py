"""A Python that has imported Ondol, and becomes a new `ondol …` by forking: a third of what starting one anew costs.

    warm_ondol.py FD      asked on this socket, by `warm.py`, one message for each; ends when nobody can ask any more

The copy is a process of its own, with the user, umask, directory, environment and open files that were asked for. What
only an exec can give it does not have: its command line and `/proc/PID/environ` are those of this program.
"""

import contextlib
import ctypes
import gc
import json
import os
import pkgutil
import resource
import selectors
import socket
import sys
from importlib import import_module

#: Rooms that the commands around a cache use. A module is what it is, loaded before or after the fork.
ROOMS = ("cli", "doctor", "explain", "guard", "host", "jobs", "report", "room", "store", "tools", "trust")
PR_SET_DUMPABLE = 4


def load() -> None:
    for room in ROOMS:
        package = import_module(f"ondol.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    for library in ("zstandard", "platform"):
        with contextlib.suppress(ImportError):
            import_module(library)


def become(asked: dict, files: list, added: dict) -> None:
    """What `subprocess` does between fork and exec, in its order, and what Python does with `-m` when it starts."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(len(files), 1024)
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    for kind, most in asked["limits"]:
        resource.setrlimit(kind, (most, most))
    if asked["uid"] is not None:
        os.setgroups([])
        os.setregid(asked["uid"], asked["uid"])
        os.setreuid(asked["uid"], asked["uid"])
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.environ.clear()
    os.environ.update({**added, **asked["env"]})
    sys.path[0] = os.getcwd()
    sys.argv = [str(import_module("ondol.__main__").__file__), *asked["arguments"]]


class Server:
    """Answers until it is itself a copy."""

    def __init__(self, questions: socket.socket) -> None:
        self.questions = questions
        self.waiting = selectors.DefaultSelector()
        self.waiting.register(questions, selectors.EVENT_READ)

    def serve(self) -> "tuple[dict, list] | None":
        """What this copy shall become. None at the end."""
        while True:
            for ready, _ in self.waiting.select():
                if ready.fileobj is not self.questions:
                    self.end(ready.fd, *ready.data)
                    continue
                message, files, _, _ = socket.recv_fds(self.questions, 1 << 20, 4)
                pid = os.fork() if message else 0
                if not pid:
                    # Now, and not when Python finds time for it: their numbers will be those of other files.
                    self.waiting.close()
                    self.questions.close()
                    return (json.loads(message), files[1:]) if message else None
                self.begin(pid, *files)

    def begin(self, pid: int, answers: int, *given: int) -> None:
        for file in given:
            os.close(file)
        os.write(answers, f"{pid}\n".encode())
        self.waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answers))

    def end(self, pidfd: int, pid: int, answers: int) -> None:
        self.waiting.unregister(pidfd)
        os.close(pidfd)
        _, status, usage = os.wait4(pid, 0)
        with contextlib.suppress(BrokenPipeError):  # who asked has lost patience
            os.write(answers, f"{os.waitstatus_to_exitcode(status)} {usage.ru_utime + usage.ru_stime}\n".encode())
        os.close(answers)


def main() -> None:
    given = json.loads(sys.argv[2])
    # Python itself adds one where no locale is set.
    added = {name: value for name, value in os.environ.items() if name not in given}
    load()
    gc.freeze()
    task = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if task is not None:
        become(*task, added)
        try:
            import_module("ondol.cli.main").run()
        except SystemExit as end:
            sys.stdout.flush()
            # Taking every module apart, as Python does at its end, would copy every page of this process first.
            os._exit(int(end.code or 0))


if __name__ == "__main__":
    main()
