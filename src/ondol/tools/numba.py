"""Numba 0.68: a directory per source directory; in it an index per function and Python, and numbered code files.

    <name>_<sha1 of the source's directory>/<module>.<function>-<line>.py311.nbi       pickles: version; stamp, table
                                            <module>.<function>-<line>.py311.<n>.nbc   one signature's code

Facts: an index or code file that is cut off ends the user's program (`pickle data was truncated`). The table is written
before the code that it names, so that a job killed in between leaves an index that names nothing, or the code of an
older source. New signatures change the index in place. Pickles are looked at, never loaded.
"""

import io
import re
from typing import Any

from ondol.errors import EntryRefused
from ondol.tools import pickled
from ondol.tools.api import CacheDir, Found
from ondol.tools.shapes import Listing, Shape, Snapshots
from ondol.tools.table import BY_NAME

_INDEX = r"(?P<above>[^/]+_[0-9a-f]{40})/(?P<title>[^/]+-[^/]+)\.py\d+[a-z]*"


class Numba(Snapshots):
    row = BY_NAME["numba"]
    shapes = (Shape(_INDEX + r"\.nbi", library=True),)
    ignored = (r".+\.tmp\.[0-9a-f]{16}", _INDEX + r"\.\d+\.nbc")

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        unit = super().finish(cache, place, listing, found)
        folder, _, name = place.rpartition("/")
        code = _named(place, cache.read("", place))
        missing = [one for one in code if one not in listing or not listing[one].st_size]
        if missing or not code:
            raise EntryRefused(f"no {missing[0]}" if missing else "names no code", because="incomplete")
        if max(listing[one].st_mtime_ns for one in code) < listing[name].st_mtime_ns:
            raise EntryRefused("the index is newer than all its code: who wrote it was cut off", because="mixed")
        return unit._replace(names=(place, *(f"{folder}/{one}" for one in code)))

    def check(self, name: str, data: bytes) -> None:
        # The index is two pickles in a row.
        _strings(name, data, 2 if name.endswith(".nbi") else 1)

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        del folder
        index = [other for other in names if other.endswith(".nbi")]
        if len(index) != 1 or not re.fullmatch(_INDEX + r"\.nbi", index[0]):
            raise EntryRefused("not one Numba index", because="outside")
        if name not in index and not re.fullmatch(re.escape(index[0][:-3]) + r"\d+\.nbc", name):
            raise EntryRefused(f"{name!r:.80} is not a file of {index[0]}", because="outside")
        return data

    def witness(self, names: tuple[str, ...]) -> str:
        """Code: the index is read on a miss too."""
        return next((name for name in names if name.endswith(".nbc")), names[0])


TOOLS = (Numba(),)


def _named(path: str, data: bytes) -> list[str]:
    """The code files that an index names."""
    stem = path.rpartition("/")[2].removesuffix("nbi")
    said = [text for text in _strings(path, data, 2) if isinstance(text, str)]
    return sorted({text for text in said if re.fullmatch(re.escape(stem) + r"\d+\.nbc", text)})


def _strings(name: str, data: bytes, pickles: int) -> list[Any]:
    """The arguments of a pickle's instructions, none of which is carried out."""
    stream, found = io.BytesIO(data), []
    try:
        for _ in range(pickles):
            found += [argument for _, argument, _ in pickled.operations(stream)]
    except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise EntryRefused(f"{name} is cut off: {error}", because="torn")
    if stream.tell() != len(data):
        raise EntryRefused(f"{name} does not end where it should", because="torn")
    return found
