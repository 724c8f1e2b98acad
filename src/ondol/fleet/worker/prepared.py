"""What a task's `prepare` returned, on its way to the worker that runs the task.

It passes through the agent and the controller, which must not run the user's code, and unpickling is that: for them it
is a value of JSON that they do not look into. What is JSON anyway stays as it is; everything else is pickled.
"""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

#: Characters. Every result waits in the controller until its task has ended.
LIMIT = 256 << 20


class Unsendable(Exception):
    """Said instead of a traceback: the fault is in what was returned, not on a line."""


def pack(task: str, value: Any) -> dict[str, Any]:
    if _is_json(value):
        packed, size = {"json": value}, len(json.dumps(value))
    else:
        try:
            data = pickle.dumps(value)
        except Exception as error:
            raise Unsendable(
                f"task {task!r}: prepare returned a {_type(value)}, which cannot be sent to the worker that runs it: "
                f"{type(error).__name__}: {error}. Return bytes, JSON, or something that pickle takes"
            )
        packed, size = {"pickle": base64.b64encode(data).decode(), "type": _type(value)}, len(data) * 4 // 3
    if size > LIMIT:
        raise Unsendable(
            f"task {task!r}: prepare returned a {_type(value)} of {size} characters, more than {LIMIT}: "
            "write it to a file and return its path"
        )
    return packed


def unpack(task: str, packed: dict[str, Any] | None) -> Any:
    if packed is None or "json" in packed:
        return packed and packed["json"]
    try:
        return pickle.loads(base64.b64decode(packed["pickle"]))
    except Exception as error:
        raise Unsendable(
            f"task {task!r}: what prepare returned (a {packed['type']}) cannot be unpickled here: "
            f"{type(error).__name__}: {error}"
        )


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_json(value: Any) -> bool:
    """JSON gives back exactly this: no tuples, no keys that are not text, no numbers that a parser refuses."""
    if type(value) is list:
        return all(_is_json(one) for one in value)
    if type(value) is dict:
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    if type(value) is int:
        return abs(value) < 1 << 63
    return value is None or type(value) in {bool, float, str}
