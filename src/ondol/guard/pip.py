"""pip's cache: downloads under `http-v2` (or, until 23.2, `http`), wheels that were built here under `wheels`.

    http-v2/6/2/6/3/1/<sha224>        `cc=4,` and, as MessagePack, the response's status and headers
    http-v2/6/2/6/3/1/<sha224>.body   its body
    http/6/2/6/3/1/<sha224>           both in one
    wheels/ab/cd/…/alpha-1.0-py3-none-any.whl

pip checks nothing of it either: a download that lost its end is `Using cached …`, and then an invalid wheel. Layouts
checked from 23.0 to 26.3.
"""

import io
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ondol.foreign_text import is_number
from ondol.guard import msgpack, wheel_record
from ondol.guard.healer import BadEntry, Healer, Progress, launched
from ondol.host import files, identity

_SEPARATE, _TOGETHER, _WHEELS = "http-v2", "http", "wheels"
_MAGIC = b"cc=4,"
#: Headers have kilobytes; where the body is in the same file, as until pip 23.2, it has the size of a wheel. Larger
#: ones are not judged: they would have to be held in memory three times.
_MAX_HEADERS, _MAX_TOGETHER = 16 << 20, 512 << 20
#: pip writes an entry's two files one after the other.
_STILL_WRITING = 600.0
_ZIP = b"PK\x03\x04"


class Pip(Healer):
    name = "pip"

    def recognises(self, cache: str) -> bool:
        return any(os.path.isdir(os.path.join(cache, name)) for name in (_SEPARATE, _TOGETHER, _WHEELS, "selfcheck"))

    def examine(self, cache: str, progress: Progress) -> Iterator[BadEntry]:
        downloads = [*_files(os.path.join(cache, _SEPARATE)), *_files(os.path.join(cache, _TOGETHER))]
        downloads = [path for path in downloads if not path.endswith(".body")]
        wheels = [path for path in _files(os.path.join(cache, _WHEELS)) if path.endswith(".whl")]
        total = len(downloads) + len(wheels)
        for number, path in enumerate([*downloads, *wheels]):
            progress(number, total)
            bad = _download(path) if number < len(downloads) else _bad(path, wheel_record.fault_in_file(path))
            if bad and os.path.lexists(path):
                yield bad
        progress(total, total)

    def asks(self, argv: Sequence[str]) -> list[str]:
        start = launched(argv, "pip")
        return [*start, "cache", "dir"] if start else []

    def usual_place(self, env: Mapping[str, str]) -> str:
        return env.get("PIP_CACHE_DIR", "") or os.path.join(identity.user_cache_dir(), "pip")


def _files(folder: str) -> Iterator[str]:
    for here, below, names in os.walk(folder):
        below.sort()
        yield from (os.path.join(here, name) for name in sorted(names))


def _bad(path: str, why: str, *leading: str) -> BadEntry | None:
    return BadEntry(path, why, leading) if why else None


def _download(path: str) -> BadEntry | None:
    """A torn one; what is not written as pip writes it is not judged."""
    separate = f"{os.sep}{_SEPARATE}{os.sep}" in path
    try:
        data, status = files.read_regular(path, _MAX_HEADERS if separate else _MAX_TOGETHER)
    except (FileNotFoundError, files.TooLarge):
        return None
    except OSError as error:
        return BadEntry(path, f"it cannot be read: {error.strerror or error}")
    if data and not data.startswith(_MAGIC):
        return None
    try:
        response = msgpack.decode(data, len(_MAGIC))[0]["response"]
    except (ValueError, TypeError, KeyError):
        return BadEntry(path, "it is cut off")
    body = f"{path}.body"
    if not separate:
        return _bad(path, _fault_in_body(response, io.BytesIO(response.get("body", b""))))
    try:
        with open(os.open(body, files.READ), "rb") as file:
            why = _fault_in_body(response, file)
    except FileNotFoundError:
        return _bad(path, "its body is missing" if time.time() - status.st_mtime > _STILL_WRITING else "")
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}"
    # pip finds an entry by the file with the headers, so that is what leads to the body.
    return _bad(body, why, path)


def _fault_in_body(response: Any, body: Any) -> str:
    if not isinstance(response, dict) or response.get("status") != 200:
        return ""  # a redirection is kept without the body that it announces
    size = body.seek(0, os.SEEK_END)
    body.seek(0)
    expected = _content_length(response)
    if expected is not None and size != expected:
        return f"it has {size} bytes instead of {expected}"
    if body.read(4) != _ZIP:
        return ""
    body.seek(0)
    return wheel_record.fault_in_zip(body, is_wheel=False)


def _content_length(response: dict[Any, Any]) -> int | None:
    headers = response.get("headers")
    found = {str(name).lower(): str(value) for name, value in headers.items()} if isinstance(headers, dict) else {}
    length = found.get("content-length", "")
    return int(length) if is_number(length) and "transfer-encoding" not in found else None
