"""Settings: one table of options; the command line beats the environment beats files; every value knows its origin.

The same table makes the flags of `ondol run`, the `ONDOL_*` variables, the keys of `[tool.ondol]`, what `ondol
config` prints and the reference page. It also says which files are believed about what: a pull request edits the files
of its project, so these say nothing about trust. Which files there are is the business of `trust/settings.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from ondol import words
from ondol.errors import UsageError
from ondol.light import Any, Record

PREFIX = "ONDOL_"
#: So many about one file are enough.
_COMPLAINTS = 5
#: What we set for processes of ours.
_INTERNAL = ("ONDOL_ROOM", "ONDOL_DEVICE", "ONDOL_FRONT", "ONDOL_GUARDED", "ONDOL_OWNER")
FILES = ("ondol.toml", "pyproject.toml")
USER_FILE, SITE_FILE = "~/.config/ondol/ondol.toml", "/etc/ondol/ondol.toml"
#: Whose file it is. A project's, on CI, where a pull request can have edited it; one's own checkout's, off CI; and
#: the user's or the site's.
PROJECT, OWN, OUTSIDE = 0, 1, 2
#: No flag and no variable either: these stand in a pipeline's own text, which the jobs in question write.
FILES_ONLY = 3
#: The words of a switch; `true` and `false` mean on and off, and the flag alone means on.
SWITCH = "auto|on|off"
_TUNING = "share what autotuning measured and is kept anyway"


class Option(Record):
    name: str
    #: text, path, name, flag, list, count, size, duration, uids, choice, or switch (auto, on or off)
    kind: str
    default: Any
    help: str
    #: What stands for the value in help; for a choice the words themselves.
    metavar: str = ""
    #: The least file that is believed. PROJECT is convenience. All above it concern trust: on their word something is
    #: executed, written or believed.
    least: int = PROJECT
    #: What any file may say all the same, because it only makes Ondol do less.
    tight: tuple[Any, ...] = ()
    #: The table of the file in which it stands, for what concerns one tool: `[tool.ondol.triton]`.
    table: str = ""

    @property
    def sort(self) -> str:
        return "trust" if self.least else "convenience"

    @property
    def key(self) -> str:
        """How it is written in the file."""
        return f"{self.table}.{self.name.removeprefix(self.table + '-')}" if self.table else self.name

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper().replace("-", "_")

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option("store", "path", "", "the store: a directory (default: one under your cache directory)", "PATH", OWN),
    Option(
        "tools",
        "list",
        ["auto"],
        "which tools' caches to manage; naming one overrides its own variables; `auto,-NAME` leaves one alone",
        "NAMES",
    ),
    Option("scope", "name", "auto", "scope to publish into; `main` and this one are read", "NAME", OWN),
    Option(
        "publish",
        "choice",
        "auto",
        "publish what is new: never, if the command succeeds, or however it ends",
        "never|on-success|auto",
        OWN,
        ("never",),
    ),
    Option("room-dir", "path", "", "where to make the private room (default: node-local temporary space)", "DIR", OWN),
    Option("share", "text", "auto", "one room for a step's ranks on a node: auto, off, a name", "KEY", OWN, ("off",)),
    Option("keep-room", "flag", False, "leave the room behind and say where it is", "", OWN),
    Option("strict", "flag", False, "fail (status 123) if there was any cache trouble", "", OWN, (True,)),
    Option("require-warm", "flag", False, "fail (status 122), with a list, if anything was compiled", "", OWN, (True,)),
    Option("frozen", "flag", False, "fill, and publish nothing: for performance jobs", "", OWN, (True,)),
    Option("fill-max", "size", 256 << 20, "how many packed bytes to fill, the most recently useful first", "SIZE"),
    Option("store-timeout", "duration", 120.0, "give up on a slow store after this long, and run without it", "TIME"),
    Option("trust", "uids", [], "UIDs whose store files are believed as root's are", "UIDS", OUTSIDE),
    Option("trusted-jobs", "list", [], "jobs, projects and forks whose branches may write `main`", "", FILES_ONLY),
    Option("sign-key", "text", "", "sign what is published: fd:N, env:NAME, or (for close) a file", "KEY", OUTSIDE),
    Option("retries", "count", 0, "run the command up to N times more if a known cache fault made it fail", "N"),
    Option("triton-autotune", "switch", "auto", f"{_TUNING} (on: tell Triton to keep it)", SWITCH, table="triton"),
    Option("tilelang-autotune", "switch", "auto", _TUNING, SWITCH, table="tilelang"),
    Option("helion-autotune", "switch", "auto", _TUNING, SWITCH, table="helion"),
    Option("ccache-shared", "path", "", "compiled objects behind each job's own ccache", "DIR", OWN, table="ccache"),
    Option("history", "path", "", "journals of past test runs, perhaps of many machines", "DIR", OWN),
    Option("json", "path", "", "write what happened to this file", "FILE", OUTSIDE),
    Option("quiet", "flag", False, "say nothing but warnings"),
    Option("verbose", "flag", False, "say more: what was set, filled, refused and why"),
)
BY_NAME = {option.name: option for option in OPTIONS}


class Value(Record):
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


class File(Record):
    """What a settings file says."""

    path: str
    #: PROJECT, OWN or OUTSIDE
    standing: int
    section: Mapping[str, Any]


def merge(
    flags: Mapping[str, Any],
    env: Mapping[str, str],
    files: Sequence[File] = (),
    directory: str = "",
    warnings: Sequence[str] = (),
) -> Settings:
    """`flags`: by option name, only those given. `files`: the one that counts first comes first. `directory`: what
    relative paths in flags and variables are relative to.
    """
    values = {option.name: Value(option.default, "default") for option in OPTIONS}
    warnings, remarks = list(warnings), _odd_variables(env)
    given: dict[str, Value] = {}
    for option in OPTIONS:
        if option.least == FILES_ONLY:
            continue
        if option.name in flags:
            given[option.name] = _convert(option, flags[option.name], "command line", directory)
        elif env.get(option.variable, "") != "":
            given[option.name] = _convert(option, env[option.variable], option.variable, directory)
    if flags.get("verbose") and flags.get("quiet"):
        raise UsageError("--quiet and --verbose contradict each other", hint="--quiet or --verbose")
    if flags.get("verbose"):
        given["quiet"] = Value(False, "command line")  # what is typed beats what is set
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
    known = {option.variable: option for option in OPTIONS}
    remarks = []
    for name in env:
        if not name.startswith(PREFIX) or name in _INTERNAL:
            continue
        if name in known:
            if known[name].least == FILES_ONLY:
                remarks.append(f"{name} passed over, because only {USER_FILE} or {SITE_FILE} can say that")
        elif meant := words.closest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], 0.75):
            remarks.append(f"{name} is no setting; did you mean {PREFIX}{meant}?")
    return [words.printable(remark) for remark in remarks]


def _believed(option: Option, value: Any, standing: int) -> bool:
    return standing >= min(option.least, OUTSIDE) or value in option.tight


def _passed_over(file: File, keys: list[str]) -> str:
    why = "on CI anybody's pull request can edit it" if file.standing == PROJECT else "that is not a project's to say"
    options = [option for option in OPTIONS if option.key in keys]
    typed = " ".join(f"--{option.name}" for option in options if option.least != FILES_ONLY)
    instead = " or ".join(filter(None, (typed, f"{USER_FILE} or {SITE_FILE}")))
    return f"{words.printable(file.path)}: {', '.join(keys)} passed over, because {why} (instead: {instead})"


def _from_file(file: File) -> tuple[dict[str, Value], list[str]]:
    """(values by option name, what in it makes no sense)"""
    known = {option.key: option for option in OPTIONS}
    values: dict[str, Value] = {}
    bad: list[str] = []
    for key, raw in _by_key(file.section).items():
        try:
            if option := known.get(key):
                values[option.name] = _convert(option, raw, file.path, os.path.dirname(file.path))
            elif len(bad) < _COMPLAINTS:  # a megabyte of unknown keys is not worth a minute of suggestions
                meant = words.closest(key, list(known))
                hint = f"did you mean {meant!r}?" if meant else "ondol config lists the keys"
                raise UsageError(f"unknown key {key!r:.80} in {words.printable(file.path)}", hint=hint)
        except UsageError as error:
            bad.append(error.line())
    return values, bad[:_COMPLAINTS]


def _by_key(section: Mapping[str, Any]) -> dict[str, Any]:
    """`[tool.ondol.triton]` with `autotune` as the key `triton.autotune`."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= {f"{key}.{inner}": item for inner, item in value.items()} if isinstance(value, dict) else {key: value}
    return flat


_FLAG_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _convert(option: Option, raw: Any, origin: str, directory: str) -> Value:
    try:
        value = _CONVERTERS[option.kind](option, raw)
        return Value(_resolved(value, directory) if option.kind == "path" else value, origin)
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        expected = {
            "flag": "true or false",
            "choice": option.metavar.replace("|", " or "),
            "switch": "auto, on or off",
            "size": "a size such as 500MB or 10GiB",
            "duration": "a time such as 90s or 15m",
            "uids": "numbers such as 1000,1001",
            "list": "names, separated by commas",
            "count": "a number such as 1",
            "text": "a text",
            "path": "a path: name a directory or a file; this version speaks no s3://",
            "name": "a plain name: letters, digits, . _ - only",
        }[option.kind]
        raise UsageError(
            f"{option.name} = {raw!r:.80} is not possible",
            because=f"from {origin}",
            hint=f"expected {expected}",
        )


def _text(_: Option, raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError
    return raw


def _path(_: Option, raw: Any) -> str:
    path = _text(_, raw).removeprefix("file://")
    if not path or "://" in path or "\0" in path:
        raise ValueError
    return path


def _resolved(path: str, directory: str) -> str:
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path))) if directory else path


def _flag(_: Option, raw: Any) -> bool:
    return raw if isinstance(raw, bool) else _FLAG_WORDS[raw.lower()]


def _switch(option: Option, raw: Any) -> str:
    return "auto" if raw == "auto" else "on" if _flag(option, raw) else "off"


def _choice(option: Option, raw: Any) -> str:
    if raw not in option.metavar.split("|"):
        raise ValueError
    return str(raw)


def _list(_: Option, raw: Any) -> list[str]:
    items = raw.split(",") if isinstance(raw, str) else list(raw)
    names = [item.strip() for item in items if item.strip()]
    if not names:
        raise ValueError
    return names


def _uids(_: Option, raw: Any) -> list[int]:
    items = [item for item in (raw.split(",") if isinstance(raw, str) else raw) if str(item).strip()]
    if any(type(item) not in (int, str) or int(item) < 0 for item in items):
        raise ValueError
    return [int(item) for item in items]


def _count(_: Option, raw: Any) -> int:
    number = int(raw) if isinstance(raw, str) else raw
    if type(number) is not int or number < 0:
        raise ValueError
    return number


def _size(_: Option, raw: Any) -> int:
    size = raw if type(raw) is int else words.parse_size(raw)
    if size < 0:
        raise ValueError
    return size


def _duration(_: Option, raw: Any) -> float:
    seconds = float(raw) if type(raw) in (int, float) else words.parse_duration(raw)
    if not 0 <= seconds < float("inf"):
        raise ValueError
    return seconds


def _name(_: Option, raw: Any) -> str:
    if not words.is_plain_name(raw):
        raise ValueError
    return str(raw)


_CONVERTERS: dict[str, Callable[[Option, Any], Any]] = {
    "text": _text,
    "path": _path,
    "name": _name,
    "flag": _flag,
    "choice": _choice,
    "switch": _switch,
    "list": _list,
    "uids": _uids,
    "count": _count,
    "size": _size,
    "duration": _duration,
}
