"""What a `*.ondol.toml` file says: its runtimes, and its tasks, written down or discovered."""

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ondol.errors import closest

_TABLES = ("discover", "runtime", "task")


#: The file makes no sense; says where and why.
TaskFileError = pytest.Collector.CollectError


def read(path: Path) -> tuple[dict[str, type], list[dict[str, Any]]]:
    """Its runtimes by name; its tasks, runtime by runtime, in their order within each."""
    from ondol.host import toml  # most suites have no such file

    try:
        text = toml.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskFileError(f"{path}: {error}")
    for key in text:
        if key not in _TABLES:
            raise TaskFileError(f"{path}: there is no table {key!r} in a task file{near(key, _TABLES)}")
    runtimes = {name: _runtime(path, name, about) for name, about in text.get("runtime", {}).items()}
    tasks = [*text.get("task", []), *_discovered(path, text.get("discover", []))]
    seen: set[str] = set()
    for entry in tasks:
        _check(path, entry, runtimes, seen)
    # A worker holds one runtime. Two that took turns would have it replaced, and the device opened anew, each time.
    turns = list(dict.fromkeys(str(entry.get("runtime")) for entry in tasks))
    return runtimes, sorted(tasks, key=lambda entry: turns.index(str(entry.get("runtime"))))


def near(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about a name that is not known."""
    known = sorted(known)
    if close := closest(name, known):
        return f"; did you mean {close!r}?"
    return f"; there are: {', '.join(known)}" if known else "; there is none"


def _check(path: Path, entry: Any, runtimes: dict[str, type], seen: set[str]) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise TaskFileError(f"{path}: a task is a table with a name, and this one has no name: {entry!r:.200}")
    name = entry["name"]
    if name in seen:
        raise TaskFileError(f"{path}: two tasks are called {name!r}; names must be unique")
    seen.add(name)
    if "command" not in entry and entry.get("runtime") not in runtimes:
        hint = near(str(entry["runtime"]), runtimes) if "runtime" in entry else ""
        raise TaskFileError(f"{path}: task {name!r} names no command and no runtime of this file{hint}")
    if not (path.parent / entry.get("directory", "")).is_dir():
        raise TaskFileError(f"{path}: task {name!r}: there is no directory {entry['directory']!r} beside this file")


def _runtime(path: Path, name: str, about: dict[str, Any]) -> type:
    where = str(about.get("class", ""))
    found = _load(path, f"runtime {name!r}", where)
    if not isinstance(found, type) or not hasattr(found, "run"):
        raise TaskFileError(f"{path}: runtime {name!r}: {where} is no class with a run method")
    return found


def _load(path: Path, what: str, where: str) -> Any:
    """`module:name`, with the file's own directory on the path as pytest does for test files."""
    module, _, attribute = where.partition(":")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise TaskFileError(f"{path}: {what}: cannot load {where!r}: {error}")


def _discovered(path: Path, wanted: str | list[str]) -> list[dict[str, Any]]:
    """By functions of the user's. By name: the order in which a directory lists its files differs between machines."""
    found: list[dict[str, Any]] = []
    for where in [wanted] if isinstance(wanted, str) else wanted:
        function = _load(path, "discover", where)
        try:
            found += [dict(entry) for entry in function(path.parent)]
        except Exception:
            raise TaskFileError(f"{path}: discover: {where} failed:\n{traceback.format_exc()}")
    return sorted(found, key=lambda entry: str(entry.get("name")))
