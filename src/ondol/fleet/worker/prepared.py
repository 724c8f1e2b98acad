"""What a task's `prepare` returned, on its way to the worker that runs the task.

It passes through the agent and the controller, which must not run the user's code, and unpickling is that: for them it
is a text that they do not look into.
"""

import base64
from typing import Any

#: Characters. Every result waits in the controller until its task has ended.
LIMIT = 256 << 20


class Unsendable(Exception):
    """Said instead of a traceback: the fault is in what was returned, not on a line."""


def pack(task: str, value: Any) -> dict[str, str]:
    import pickle  # here: most suites have no tasks

    try:
        data = base64.b64encode(pickle.dumps(value)).decode()
    except Exception as error:
        raise Unsendable(
            f"task {task!r}: prepare returned a {_type(value)}, which cannot be sent to the worker that runs it: "
            f"{type(error).__name__}: {error}. Return bytes, JSON, or something that pickle takes"
        )
    if len(data) > LIMIT:
        raise Unsendable(
            f"task {task!r}: prepare returned a {_type(value)} of {len(data)} characters, more than {LIMIT}: "
            "write it to a file and return its path"
        )
    return {"pickle": data, "type": _type(value)}


def unpack(task: str, packed: dict[str, str] | None) -> Any:
    if packed is None:
        return None
    import pickle

    try:
        return pickle.loads(base64.b64decode(packed["pickle"]))
    except Exception as error:
        raise Unsendable(
            f"task {task!r}: what prepare returned (a {packed['type']}) cannot be unpickled here: "
            f"{type(error).__name__}: {error}"
        )


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
