"""Settings: the command line beats the environment beats files; every value knows its origin.

Which there are, and which file is believed about what, says the table in `options.py`; which files there are is the
business of `trust/settings.py`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ondol import units
from ondol.errors import UsageError, closest, did_you_mean
from ondol.foreign_text import is_plain_name, printable
from ondol.options import BY_NAME, FILES_ONLY, OUTSIDE, PREFIX, PROJECT, Option

TYPED_HERE = "command line"
#: So many about one file are enough.
_COMPLAINTS = 5
#: What we set for processes of ours, and what that tells them.
INTERNAL = {
    "ONDOL_ROOM": "the room of the job",
    "ONDOL_DEVICE": "the devices of this worker, or the one that a health probe is to look at",
    "ONDOL_GUARDED": "which cache is locked, by which process",
    "ONDOL_OWNER": "",
    "ONDOL_FRONT": "",
    "ONDOL_WORKER_START": "",
    "ONDOL_NODE_SETTINGS": "",
    "ONDOL_NODE_START": "",
    "ONDOL_AGENT_START": "",
}
FILES = ("ondol.toml", "pyproject.toml")
USER_FILE, SITE_FILE = "~/.config/ondol/ondol.toml", "/etc/ondol/ondol.toml"


class Value(NamedTuple):
    value: Any
    #: `command line`, `ONDOL_STORE`, `…/ondol.toml` or `default`
    origin: str


class Settings:
    """The merged values. `settings.store` is the value; `settings.origin("store")` where it came from."""

    def __init__(self, values: Mapping[str, Value], warnings: Sequence[str] = (), remarks: Sequence[str] = ()) -> None:
        self._values = dict(values)
        #: Files that could not be used, and what in them makes no sense.
        self.warnings = list(warnings)
        #: What files said that is not theirs to say.
        self.remarks = list(remarks)

    def __getattr__(self, name: str) -> Any:
        """`settings.room_dir`"""
        if name.startswith("_") or (found := self._values.get(name.replace("_", "-"))) is None:
            raise AttributeError(name)
        return found.value

    def origin(self, name: str) -> str:
        return self._values[name].origin

    def value(self, name: str) -> Any:
        return self._values[name].value

    def rows(self) -> list[tuple[Option, Value]]:
        return [(BY_NAME[name], value) for name, value in self._values.items()]


class SettingsFile(NamedTuple):
    """What a settings file says."""

    path: str
    #: PROJECT, OWN or OUTSIDE
    standing: int
    section: Mapping[str, Any]


def merge(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    files: Sequence[SettingsFile] = (),
    directory: str = "",
    warnings: Sequence[str] = (),
) -> Settings:
    """`flags`: by option name, only those given. `files`: the one that counts first comes first. `directory`: what
    relative paths in flags and variables are relative to.
    """
    values = {name: Value(option.default, "default") for name, option in BY_NAME.items()}
    warnings, remarks = list(warnings), _odd_variables(env)
    given: dict[str, Value] = {}
    for name, option in BY_NAME.items():
        if option.least == FILES_ONLY:
            continue
        if name in flags:
            given[name] = Value(convert(option, flags[name], TYPED_HERE, directory), TYPED_HERE)
        elif env.get(option.variable, "") != "":
            variable = option.variable
            given[name] = Value(convert(option, env[variable], variable, directory), variable)
    if flags.get("verbose") and flags.get("quiet"):
        raise UsageError("--quiet and --verbose contradict each other", hint="--quiet or --verbose")
    if flags.get("verbose"):
        given["quiet"] = Value(False, TYPED_HERE)  # what is typed beats what is set
    for file in reversed(files):
        found, bad = _from_file(file)
        warnings += bad
        said = [name for name, value in found.items() if not _believed(BY_NAME[name], value.value, file.standing)]
        if vain := [BY_NAME[name].key for name in said if name not in given]:
            remarks.append(_passed_over(file, vain))
        values |= {name: value for name, value in found.items() if name not in said}
    return Settings(values | given, warnings, remarks)


def _odd_variables(env: Mapping[str, str]) -> list[str]:
    """Variables that look like a setting's and are none."""
    known = {option.variable: option for option in BY_NAME.values()}
    remarks = []
    for name in env:
        if name in known:
            if known[name].least == FILES_ONLY:
                remarks.append(f"{name} ignored, because only {USER_FILE} or {SITE_FILE} can say that")
        elif name.startswith(PREFIX) and name not in INTERNAL:
            # Without what all of them have in common, which would make everything alike.
            likely = {variable.removeprefix(PREFIX): variable for variable in known}
            meant = closest(name.removeprefix(PREFIX), list(likely), 0.75)
            remarks += [f"{name} is no setting; did you mean {likely[meant]}?"] if meant else []
    return [printable(remark) for remark in remarks]


def _believed(option: Option, value: Any, standing: int) -> bool:
    return standing >= min(option.least, OUTSIDE) or value in option.tight


def _passed_over(file: SettingsFile, keys: list[str]) -> str:
    why = "on CI anybody's pull request can edit it" if file.standing == PROJECT else "that is not a project's to say"
    options = [option for option in BY_NAME.values() if option.key in keys]
    typed = " ".join(option.flag for option in options if option.least != FILES_ONLY)
    instead = " or ".join(filter(None, (typed, f"{USER_FILE} or {SITE_FILE}")))
    return f"{printable(file.path)}: {', '.join(keys)} ignored, because {why} (instead: {instead})"


def _from_file(file: SettingsFile) -> tuple[dict[str, Value], list[str]]:
    """(values by option name, what in it makes no sense)"""
    known = {option.key: option for option in BY_NAME.values()}
    values: dict[str, Value] = {}
    bad: list[str] = []
    for key, raw in _by_key(file.section).items():
        try:
            if option := known.get(key):
                value = convert(option, raw, file.path, os.path.dirname(file.path))
                values[option.name] = Value(value, file.path)
            elif len(bad) < _COMPLAINTS:  # a megabyte of unknown keys is not worth a minute of suggestions
                hint = did_you_mean(key, list(known), "ondol config lists the keys")
                raise UsageError(f"unknown key {key!r:.80} in {printable(file.path)}", hint=hint)
        except UsageError as error:
            bad.append(error.line())
    return values, bad[:_COMPLAINTS]


def _by_key(section: Mapping[str, Any]) -> dict[str, Any]:
    """`[tool.ondol.triton]` with `autotune` as the key `triton.autotune`."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= {f"{key}.{inner}": item for inner, item in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def convert(option: Option, raw: Any, origin: str = TYPED_HERE, directory: str = "") -> Any:
    """The value that somebody wrote, typed or set. Raises `UsageError`."""
    reader, expected = KINDS[option.kind]
    known = option.metavar.split("|") if option.kind in ("choice", "switch") else []
    try:
        value = reader(raw)
        if known and value not in known:
            raise ValueError
        if option.kind == "path" and directory:
            return os.path.normpath(os.path.join(directory, os.path.expanduser(value)))
        return value
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        typed = origin == TYPED_HERE
        raise UsageError(
            f"{option.flag if typed else f'{option.key} ='} {raw!r:.80} is not possible",
            because="" if typed else f"from {origin}",
            hint=did_you_mean(str(raw), known, f"expected {expected or ' or '.join(known)}"),
        )


def _good(value: Any, good: bool) -> Any:
    if not good:
        raise ValueError
    return value


def _text(raw: Any) -> Any:
    return _good(raw, isinstance(raw, str))


def _path(raw: Any) -> Any:
    path = _text(raw).removeprefix("file://")
    return _good(path, path and "://" not in path and "\0" not in path)


_FLAG_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _flag(raw: Any) -> bool:
    return raw if isinstance(raw, bool) else _FLAG_WORDS[raw.lower()]


def _switch(raw: Any) -> str:
    return "auto" if raw == "auto" else "on" if _flag(raw) else "off"


def _items(raw: Any) -> list[Any]:
    return [item for item in (raw.split(",") if isinstance(raw, str) else raw) if str(item).strip()]


def _list(raw: Any) -> Any:
    names = [item.strip() for item in _items(raw)]
    return _good(names, bool(names))


def _uids(raw: Any) -> Any:
    items = _items(raw)
    return _good([int(item) for item in items], all(type(item) in (int, str) and int(item) >= 0 for item in items))


def _count(raw: Any) -> Any:
    number = int(raw) if isinstance(raw, str) else raw
    return _good(number, type(number) is int and number >= 0)


def _size(raw: Any) -> Any:
    size = raw if type(raw) is int else units.parse_size(raw)
    return _good(size, size >= 0)


def _duration(raw: Any) -> Any:
    seconds = float(raw) if type(raw) in (int, float) else units.parse_duration(raw)
    return _good(seconds, 0 <= seconds < float("inf"))


#: Of an option's values: how to read one, and what to say is expected; a choice says it itself.
KINDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (_text, "a text"),
    "pair": (_text, "a text"),
    "path": (_path, "a path: name a directory or a file; this version speaks no s3://"),
    "name": (lambda raw: _good(raw, is_plain_name(raw)), "a plain name: letters, digits, . _ - only"),
    "flag": (_flag, "true or false"),
    # TOML's true and false, for `on` and `off`.
    "choice": (lambda raw: _switch(raw) if isinstance(raw, bool) else raw, ""),
    "switch": (_switch, "auto, on or off"),
    "list": (_list, "names, separated by commas"),
    "names": (_list, "names, separated by commas"),
    "uids": (_uids, "numbers such as 1000,1001"),
    "count": (_count, "a number such as 1"),
    "positive": (lambda raw: _good(_count(raw), _count(raw) > 0), "a number above 0"),
    "size": (_size, "a size such as 500MB or 10GiB"),
    "duration": (_duration, "a time such as 90s or 15m"),
}
