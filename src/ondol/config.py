"""Settings: one table of options; the command line beats the environment beats the file; every value knows its origin.

The same table makes the flags of `ondol run`, the `ONDOL_*` variables, the keys of `[tool.ondol]`, what `ondol
config` prints and the reference page. An unknown key or an impossible value is an error that names the value and
where it came from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from ondol import words
from ondol.errors import UsageError
from ondol.light import Any, Record

PREFIX = "ONDOL_"
FILES = ("ondol.toml", "pyproject.toml")


class Option(Record):
    name: str
    #: text, name, flag, list, count, size, duration, uids, or choice
    kind: str
    default: Any
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    #: The table of the file in which it stands, for what concerns one tool: `[tool.ondol.triton]`.
    table: str = ""

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
    Option("store", "text", "", "the store: a directory (default: one under your cache directory)", "PATH"),
    Option("tools", "list", ["auto"], "which tools' caches to manage; naming one overrides its own variables", "NAMES"),
    Option("scope", "name", "auto", "trust namespace to publish into; `main` and this one are read", "NAME"),
    Option("publish", "choice", "auto", "when to publish what is new", "", ("never", "on-success", "auto")),
    Option("room-dir", "text", "", "where to make the private room (default: node-local temporary space)", "DIR"),
    Option(
        "share", "text", "auto", "one room for the ranks of a job step on a node: auto (srun), off, or a name", "KEY"
    ),
    Option("keep-room", "flag", False, "leave the room behind and say where it is"),
    Option("strict", "flag", False, "fail (status 123) if there was any cache trouble"),
    Option("require-warm", "flag", False, "fail (status 122), with the list, if anything new was compiled"),
    Option("frozen", "flag", False, "fill, and publish nothing: for performance jobs"),
    Option("fill-max", "size", 256 << 20, "how many packed bytes to fill, the most recently useful first", "SIZE"),
    Option("store-timeout", "duration", 120.0, "give up on a slow store after this long, and run without it", "TIME"),
    Option("trust", "uids", [], "UIDs whose store files are believed as root's are", "UIDS"),
    Option("trusted-jobs", "list", [], "jobs that may write `main`, where the CI system cannot tell", "NAMES"),
    Option(
        "sign-key", "text", "", "sign what is published with this key: fd:N, env:NAME, or (for close) a file", "KEY"
    ),
    Option("retries", "count", 0, "run the command again, so often, if it failed of a fault in a cache", "N"),
    Option(
        "triton-autotune",
        "flag",
        False,
        "keep and share what Triton's autotuning measured; fixes what is chosen",
        table="triton",
    ),
    Option("tilelang-autotune", "flag", True, "share what TileLang's autotuning measured", table="tilelang"),
    Option("helion-autotune", "flag", True, "share what Helion's autotuning measured", table="helion"),
    Option(
        "ccache-shared",
        "text",
        "",
        "a directory of compiled objects behind each job's own ccache",
        "DIR",
        table="ccache",
    ),
    Option("json", "text", "", "write what happened to this file", "FILE"),
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

    store: str
    tools: list[str]
    scope: str
    publish: str
    room_dir: str
    share: str
    keep_room: bool
    strict: bool
    require_warm: bool
    frozen: bool
    fill_max: int
    store_timeout: float
    trust: list[int]
    trusted_jobs: list[str]
    sign_key: str
    retries: int
    triton_autotune: bool
    tilelang_autotune: bool
    helion_autotune: bool
    ccache_shared: str
    json: str
    quiet: bool
    verbose: bool

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)
        for name, value in values.items():
            setattr(self, BY_NAME[name].attribute, value.value)

    def origin(self, name: str) -> str:
        return self._values[name].origin

    def value(self, name: str) -> Any:
        return self._values[name].value

    def rows(self) -> list[tuple[Option, Value]]:
        return [(BY_NAME[name], value) for name, value in self._values.items()]


def load(flags: Mapping[str, Any], env: Mapping[str, str], directory: str) -> Settings:
    """Merge command-line `flags` (by option name, only those given), the environment and the nearest file."""
    file_values, path = _read_nearest_file(directory)
    return merge(flags, env, file_values, path)


def merge(flags: Mapping[str, Any], env: Mapping[str, str], from_file: Mapping[str, Any], path: str) -> Settings:
    from_file = _by_key(from_file)
    known = {option.key: option for option in OPTIONS}
    unknown = [key for key in from_file if key not in known]
    if unknown:
        meant = words.closest(unknown[0], list(known))
        raise UsageError(
            f"unknown key {unknown[0]!r} in {path}",
            hint=f"did you mean {meant!r}?" if meant else "ondol config lists the keys",
        )
    values: dict[str, Value] = {}
    for option in OPTIONS:
        if option.name in flags:
            values[option.name] = _convert(option, flags[option.name], "command line")
        elif env.get(option.variable, "") != "":
            values[option.name] = _convert(option, env[option.variable], option.variable)
        elif option.key in from_file:
            values[option.name] = _convert(option, from_file[option.key], path)
        else:
            values[option.name] = Value(option.default, "default")
    return Settings(values)


def _by_key(section: Mapping[str, Any]) -> dict[str, Any]:
    """`[tool.ondol.triton]` with `autotune` as the key `triton.autotune`."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= {f"{key}.{inner}": item for inner, item in value.items()} if isinstance(value, dict) else {key: value}
    return flat


_FLAG_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _convert(option: Option, raw: Any, origin: str) -> Value:
    try:
        return Value(_CONVERTERS[option.kind](option, raw), origin)
    except (ValueError, TypeError, AttributeError, KeyError):
        expected = {
            "flag": "true or false",
            "choice": " or ".join(option.choices),
            "size": "a size such as 500MB or 10GiB",
            "duration": "a time such as 90s or 15m",
            "uids": "numbers such as 1000,1001",
            "list": "names, separated by commas",
            "count": "a number such as 1",
            "text": "a text",
            "name": "a plain name: letters, digits, . _ - only",
        }[option.kind]
        raise UsageError(
            f"{option.name} = {raw!r} makes no sense", because=f"from {origin}", hint=f"expected {expected}"
        )


def _text(_: Option, raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError
    return raw


def _flag(_: Option, raw: Any) -> bool:
    return raw if isinstance(raw, bool) else _FLAG_WORDS[raw.lower()]


def _choice(option: Option, raw: Any) -> str:
    if raw not in option.choices:
        raise ValueError
    return str(raw)


def _list(_: Option, raw: Any) -> list[str]:
    items = raw.split(",") if isinstance(raw, str) else list(raw)
    names = [item.strip() for item in items if item.strip()]
    if not names:
        raise ValueError
    return names


def _uids(_: Option, raw: Any) -> list[int]:
    items = raw.split(",") if isinstance(raw, str) else list(raw)
    numbers = [int(item) for item in items if str(item).strip()]
    if any(number < 0 for number in numbers):
        raise ValueError
    return numbers


def _count(_: Option, raw: Any) -> int:
    number = int(raw) if isinstance(raw, str) else raw
    if type(number) is not int or number < 0:
        raise ValueError
    return number


def _size(_: Option, raw: Any) -> int:
    return raw if type(raw) is int else words.parse_size(raw)


def _duration(_: Option, raw: Any) -> float:
    return float(raw) if type(raw) in (int, float) else words.parse_duration(raw)


def _name(_: Option, raw: Any) -> str:
    if not words.is_plain_name(raw):
        raise ValueError
    return str(raw)


_CONVERTERS: dict[str, Callable[[Option, Any], Any]] = {
    "text": _text,
    "name": _name,
    "flag": _flag,
    "choice": _choice,
    "list": _list,
    "uids": _uids,
    "count": _count,
    "size": _size,
    "duration": _duration,
}


def _read_nearest_file(directory: str) -> tuple[dict[str, Any], str]:
    """The settings of the first file found here or above, up to the top of the checkout; and its path."""
    here = directory
    while True:
        for name in FILES:
            path = os.path.join(here, name)
            try:
                with open(path, "rb") as file:
                    data = file.read()
            except OSError:
                continue
            # pyproject.toml is nearly everywhere and TOML is slow to import: look before parsing.
            if name == "ondol.toml" or b"tool.ondol" in data:
                return _parse(path, name, data), path
        above = os.path.dirname(here)
        if above == here or os.path.exists(os.path.join(here, ".git")):
            return {}, ""
        here = above


def _parse(path: str, name: str, data: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        parsed = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read", because=str(error), hint="correct it, or run elsewhere")
    section: Any = parsed
    if name == "pyproject.toml":
        section = parsed.get("tool", {}).get("ondol", {})
    if not isinstance(section, dict):
        raise UsageError(f"[tool.ondol] in {path} is not a table")
    return section
