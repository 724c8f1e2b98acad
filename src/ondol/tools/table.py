"""Every tool as one row: what Ondol sets for it, whose value wins, where its cache is without us.

The environment of a job, `ondol tools` and `docs/reference/tools.md` all come from these rows. They are plain values:
the code that understands a tool's files (`ondol.tools.<module>`) is imported only by a job that has such files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ondol.light import Record

#: How a cache can be shared, from the survey of the field.
SHARING = {
    "A": "single files, merged freely",
    "B": "directories, merged whole",
    "C": "bound to an absolute path",
    "D": "opaque, one snapshot at a time",
    "E": "has its own protocol, guarded and never copied",
}
#: The classes that a job gets without asking. C needs a mount namespace of its own and E the tool's own protocol:
#: whoever wants them names them.
UNASKED = "ABD"


class Row(Record):
    """One tool."""

    name: str
    #: A key of `SHARING`.
    sharing: str
    #: One line for `ondol tools`.
    summary: str
    #: The versions whose layout was checked.
    versions: str
    #: Variable → value, with `{cache}` for the tool's directory in the room.
    sets: Mapping[str, str]
    #: Where the cache is without Ondol: the first of these whose variables all have a value. Beside variables:
    #: `{HOME}`, `{CACHE_HOME}`, `{TMP}` and `{USER}`, which always have one.
    places: tuple[str, ...]
    #: Variables by which a user moves the cache: their values win, unless the user asked for the tool by name.
    yields_to: tuple[str, ...] = ()
    #: Variables that change what the tool does with its cache, kept as they are and mentioned.
    keeps: tuple[str, ...] = ()
    #: What its own key does not cover, so that our fingerprint must; for the reference page.
    fingerprint: str = "nothing: its own key covers all"
    #: What a user should know about how it is shared; for the reference page.
    note: str = ""

    @property
    def module(self) -> str:
        return "ondol.tools." + self.name.replace("-", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sets, *self.yields_to, *self.keeps)))


class Plan(Record):
    """What will be done for a tool in this job."""

    managed: bool
    #: Variables to set for the command.
    env: Mapping[str, str] = {}
    #: One sentence if the user's own settings changed what happens; empty otherwise.
    remark: str = ""


ROWS: tuple[Row, ...] = (
    Row(
        "triton",
        "B",
        "GPU kernels compiled by Triton, and its helper libraries",
        "3.4 to 3.9",
        {"TRITON_CACHE_DIR": "{cache}"},
        ("{TRITON_CACHE_DIR}", "{TRITON_HOME}/.triton/cache", "{HOME}/.triton/cache"),
        yields_to=("TRITON_CACHE_DIR", "TRITON_HOME"),
        keeps=("TRITON_CACHE_MANAGER",),
        fingerprint="helper libraries: processor, C library, Python's ABI; kernels: nothing",
    ),
    Row(
        "jax",
        "A",
        "programs compiled by JAX and XLA",
        "0.10",
        {"JAX_COMPILATION_CACHE_DIR": "{cache}", "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"},
        ("{JAX_COMPILATION_CACHE_DIR}",),
        yields_to=("JAX_COMPILATION_CACHE_DIR",),
        keeps=("JAX_ENABLE_COMPILATION_CACHE",),
        fingerprint="processor and its features, C library",
        note="Without Ondol JAX keeps nothing unless told to. XLA's own caches are off: with them the key holds the "
        "cache's path, and no other place would ever hit.",
    ),
)
BY_NAME = {row.name: row for row in ROWS}


def plan(row: Row, env: Mapping[str, str], cache_dir: str, *, asked: bool) -> Plan:
    """What to set so that the tool's cache is `cache_dir`.

    A value that the user has set wins, unless the user `asked` Ondol for this tool by name; either way it is said.
    """
    theirs = [name for name in row.yields_to if env.get(name)]
    if theirs and not asked:
        was = f"{theirs[0]}={env[theirs[0]]}"
        return Plan(
            False, {}, f"{row.name}: {was} is set and left as it is (to let Ondol manage it: --tools {row.name})"
        )
    remarks = [f"{name} is replaced for this command" for name in theirs if name in row.sets]
    remarks += [f"{name}={env[name]} is kept" for name in row.keeps if env.get(name)]
    ours = {
        name: value.replace("{cache}", cache_dir)
        for name, value in row.sets.items()
        if name in row.yields_to or not env.get(name)
    }
    return Plan(True, ours, f"{row.name}: " + ", ".join(remarks) if remarks else "")


def default_location(row: Row, env: Mapping[str, str]) -> str:
    """Where the tool's cache is without Ondol, as far as the environment tells; empty if it keeps none."""
    home = env.get("HOME") or os.path.expanduser("~")
    known = {
        "HOME": home,
        "CACHE_HOME": env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"),
        "TMP": env.get("TMPDIR") or "/tmp",
        "USER": env.get("USER") or env.get("LOGNAME") or str(os.geteuid()),
    }
    for place in row.places:
        try:
            path = place.format_map({**{name: value for name, value in env.items() if value}, **known})
        except KeyError:
            continue  # names a variable that is not set
        return path
    return ""
