"""The contract between Ondol and a tool whose cache it understands. One file per tool; `registry` lists them.

A tool module says what its cache is made of. It never touches the store, the network or the user's process, and it
never writes: files are read through the `CacheDir` it is handed and turned from path-bound to path-free and back as
bytes. The `tests/conformance/tool_suite.py` holds every tool to this page.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping

from ondol.host import files
from ondol.host.identity import Host
from ondol.light import Protocol, Record

#: How a cache can be shared, from the survey of the field.
SHARING = {
    "A": "single files, merged freely",
    "B": "directories, merged whole",
    "C": "bound to an absolute path",
    "D": "opaque, one snapshot at a time",
    "E": "has its own protocol, guarded and never copied",
}
#: For entries that depend on nothing but what their own key covers.
ANYWHERE = "any"
MAX_FILE_BYTES = 1 << 30


class Plan(Record):
    """What will be done for a tool in this job."""

    managed: bool
    #: Variables to set for the command.
    env: Mapping[str, str] = {}
    #: One sentence if the user's own settings changed what happens; empty otherwise.
    remark: str = ""


class Found(Record):
    """A complete entry in a cache directory, not yet read."""

    key: str
    fingerprint: str
    #: The directory it lies in, relative to the cache directory.
    folder: str
    names: tuple[str, ...]
    title: str
    #: What making it cost, as far as its files tell.
    seconds: float


class Refused(Record):
    """Something in a cache directory that must not travel."""

    #: incomplete, torn, mixed, outside, unreadable, unknown
    kind: str
    #: Relative to the cache directory.
    place: str
    why: str


class CacheDir:
    """A cache directory as a tool module may see it: two levels, plain files, no links followed."""

    def __init__(self, path: str, *, ours: bool) -> None:
        self.path = path
        #: True for a room's cache, written under our eyes; False for one that is adopted from elsewhere, whose times
        #: and absolute paths may come from other machines.
        self.ours = ours

    def folders(self) -> list[str]:
        with os.scandir(self.path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def listing(self, folder: str) -> dict[str, os.stat_result]:
        """The plain files in a folder. Raises `OSError` if it cannot be read."""
        found: dict[str, os.stat_result] = {}
        with os.scandir(os.path.join(self.path, folder)) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = status
        return found

    def read(self, folder: str, name: str) -> bytes:
        return files.read_regular(os.path.join(self.path, folder, name), MAX_FILE_BYTES)[0]


class Tool(Protocol):
    """A program whose cache we understand."""

    name: str
    #: One line for `ondol tools`.
    summary: str
    #: A key of `SHARING`.
    sharing: str
    #: The versions whose layout was checked.
    versions: str
    #: Variables that decide where its cache is; the first is the one Ondol sets.
    variables: tuple[str, ...]

    def default_location(self, env: Mapping[str, str]) -> str:
        """Where its cache is without Ondol, as far as the environment tells."""

    def plan(self, env: Mapping[str, str], cache_dir: str, *, asked: bool) -> Plan:
        """What to set so that the cache is `cache_dir`.

        A value that the user has set wins, unless the user `asked` Ondol for this tool by name; either way it is said.
        """

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        """Split a cache directory into entries and what must be left behind. Temporary files are neither."""

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        """A file's path-free form. Raises `EntryRefused` if it is torn, or bound to a place outside the cache."""

    def made_by(self, contents: Mapping[str, bytes]) -> str:
        """The version of the tool that made an entry, from its own files; empty if they do not say."""

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        """The file as it must read in the absolute directory `folder`; `EntryRefused` if it names anything else."""

    def folder(self, key: str) -> str:
        """The directory of an entry, relative to the cache directory."""

    def witness(self, names: tuple[str, ...]) -> str:
        """The file that the tool surely reads when it uses the entry."""

    def accepts(self, fingerprint: str, host: Host) -> bool:
        """Whether entries of this fingerprint can work here."""
