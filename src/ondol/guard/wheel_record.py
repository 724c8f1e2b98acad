"""A wheel against its own RECORD: unpacked in a directory, as uv keeps it, or as a zip file, as pip does.

Every wheel names each of its files with size and checksum. Nobody looks at that after installing; we do, when there
is reason to. Only what RECORD names is judged: files beside it (`__pycache__`) are nobody's damage.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable
from typing import IO

from ondol.host import files
from ondol.light import Protocol, Record
from ondol.words import is_number

_ALGORITHMS = ("sha256", "sha384", "sha512")
_CHUNK = 1 << 20
_MAX_RECORD = 64 << 20
#: Without these no installer can use a wheel.
_NEEDED = ("METADATA", "WHEEL", "RECORD")
#: What `zipfile` raises for bytes that are not a whole zip file, in the versions of Python that we run on.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError)


class RecordRow(Record):
    path: str
    algorithm: str
    digest: str
    size: int | None


class Source(Protocol):
    """Where a wheel's files come from."""

    def top(self) -> Iterable[str]:
        """The names at its top."""

    def open(self, path: str) -> IO[bytes]:
        """One of its files. Raises `FileNotFoundError`, other `OSError`s, and `BadZipFile`."""


class Folder:
    """An unpacked wheel."""

    def __init__(self, path: str) -> None:
        self._path = path

    def top(self) -> Iterable[str]:
        return os.listdir(self._path)

    def open(self, path: str) -> IO[bytes]:
        fd = os.open(os.path.join(self._path, path), files.READ)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "not a plain file")
        return os.fdopen(fd, "rb")


class Zip:
    """A wheel in one file."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def top(self) -> Iterable[str]:
        return {name.split("/")[0] for name in self._archive.namelist()}

    def open(self, path: str) -> IO[bytes]:
        try:
            return self._archive.open(path)
        except KeyError:
            raise FileNotFoundError(path)


def fault_in_folder(path: str) -> str:
    """What is wrong with an unpacked wheel, in a few words; empty if nothing is."""
    try:
        return fault(Folder(path))
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except ValueError as error:  # a name that no file system knows
        return f"RECORD cannot be read: {error}"


def fault_in_zip(path: str) -> str:
    """The same for a wheel file; its own checksums are tried on the way."""
    try:
        with open(os.open(path, files.READ), "rb") as file, zipfile.ZipFile(file) as archive:
            return fault(Zip(archive))
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except ZIP_ERRORS as error:
        return f"it is not a whole zip file: {error}"


def fault(source: Source) -> str:
    infos = sorted(name for name in source.top() if name.endswith(".dist-info"))
    if not infos:
        return "its .dist-info directory is missing"
    return next((why for why in (_fault_in_info(source, info) for info in infos) if why), "")


def _fault_in_info(source: Source, info: str) -> str:
    contents = {}
    for name in _NEEDED:
        try:
            with source.open(f"{info}/{name}") as file:
                contents[name] = file.read(_MAX_RECORD)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
    try:
        rows = parse(contents["RECORD"])
    except csv.Error as error:
        return f"RECORD cannot be read: {error}"
    if not any(row.path == f"{info}/METADATA" for row in rows):
        return "RECORD is empty or cut off"
    return next((why for why in (_fault_in_row(source, row) for row in rows) if why), "")


def parse(data: bytes) -> list[RecordRow]:
    """The rows that can be checked, of paths inside the wheel. Raises `csv.Error`."""
    rows = []
    for fields in csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")):
        path, checksum, size = (*fields, "", "", "")[:3]
        algorithm, _, digest = checksum.partition("=")
        inside = path and not os.path.isabs(path) and ".." not in path.split("/")
        if inside and digest and algorithm in _ALGORITHMS:
            rows.append(RecordRow(path, algorithm, digest.rstrip("="), int(size) if is_number(size) else None))
    return rows


def _fault_in_row(source: Source, row: RecordRow) -> str:
    digest = hashlib.new(row.algorithm)
    size = 0
    try:
        with source.open(row.path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return f"{row.path} is missing"
    except OSError as error:
        return f"{row.path} cannot be read: {error.strerror or error}"
    if row.size is not None and size != row.size:
        return f"{row.path} has {size} bytes instead of {row.size}"
    if base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() != row.digest:
        return f"{row.path} is not what RECORD says"
    return ""
