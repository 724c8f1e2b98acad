"""A wheel against its own RECORD: unpacked in a directory, as uv keeps it, or as a zip file, as pip does.

Every wheel names each of its files with size and checksum. Nobody looks at that after installing; we do, when there
is reason to. Only what RECORD names is judged: files beside it (`__pycache__`) are nobody's damage.
"""

import base64
import csv
import hashlib
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import IO

from ondol.foreign_text import is_number
from ondol.host import files

_ALGORITHMS = ("sha256", "sha384", "sha512")
_CHUNK = 1 << 20
_MAX_RECORD = 64 << 20
#: Without these no installer can use a wheel.
_NEEDED = ("METADATA", "WHEEL", "RECORD")
#: What `zipfile` raises for bytes that are not a whole zip file, in the versions of Python that we run on.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError)


#: Opens one of a wheel's files. Raises `FileNotFoundError`, other `OSError`s, and `BadZipFile`.
Open = Callable[[str], IO[bytes]]


def fault_in_folder(path: str) -> str:
    """What is wrong with an unpacked wheel, in a few words; empty if nothing is."""

    def open_file(name: str) -> IO[bytes]:
        fd = os.open(os.path.join(path, name), files.READ)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "not a plain file")
        return os.fdopen(fd, "rb")

    try:
        return _fault(os.listdir(path), open_file)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except ValueError as error:  # a name that no file system knows
        return f"RECORD cannot be read: {error}"


def fault_in_file(path: str) -> str:
    """The same for a wheel in one file."""
    try:
        with open(os.open(path, files.READ), "rb") as file:
            return fault_in_zip(file, is_wheel=True)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def fault_in_zip(file: IO[bytes], *, is_wheel: bool) -> str:
    """The same for an open zip file: its own checksums, and if it is a wheel, RECORD."""
    try:
        with zipfile.ZipFile(file) as archive:

            def open_file(name: str) -> IO[bytes]:
                try:
                    return archive.open(name)
                except KeyError:
                    raise FileNotFoundError(name)

            top = {name.split("/")[0] for name in archive.namelist()}
            if is_wheel or any(name.endswith(".dist-info") for name in top):
                return _fault(top, open_file)
            torn = archive.testzip()
            return f"{torn} in it is not what its checksum says" if torn else ""
    except _ZIP_ERRORS as error:
        return f"it is not a whole zip file: {error}"


def _fault(top: Iterable[str], open_file: Open) -> str:
    infos = sorted(name for name in top if name.endswith(".dist-info"))
    if not infos:
        return "its .dist-info directory is missing"
    return next((why for why in (_fault_in_info(open_file, info) for info in infos) if why), "")


def _fault_in_info(open_file: Open, info: str) -> str:
    contents = {}
    for name in _NEEDED:
        try:
            with open_file(f"{info}/{name}") as file:
                contents[name] = file.read(_MAX_RECORD)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
    try:
        rows = parse(contents["RECORD"])
    except csv.Error as error:
        return f"RECORD cannot be read: {error}"
    if f"{info}/METADATA" not in rows:
        return "RECORD is empty or cut off"
    return next((why for why in (_fault_in_file(open_file, path, *row) for path, row in rows.items()) if why), "")


def parse(data: bytes) -> dict[str, tuple[str, str, int | None]]:
    """Path inside the wheel → (algorithm, digest, size), of what can be checked. Raises `csv.Error`."""
    rows = {}
    for fields in csv.reader(io.StringIO(data.decode("utf-8", "replace"), newline="")):
        path, checksum, size = (*fields, "", "", "")[:3]
        algorithm, _, digest = checksum.partition("=")
        inside = path and not os.path.isabs(path) and ".." not in path.split("/")
        if inside and digest and algorithm in _ALGORITHMS:
            rows[path] = algorithm, digest.rstrip("="), int(size) if is_number(size) else None
    return rows


def _fault_in_file(open_file: Open, path: str, algorithm: str, digest: str, size: int | None) -> str:
    hashed, read = hashlib.new(algorithm), 0
    try:
        with open_file(path) as file:
            while chunk := file.read(_CHUNK):
                hashed.update(chunk)
                read += len(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    if size is not None and read != size:
        return f"{path} has {read} bytes instead of {size}"
    if base64.urlsafe_b64encode(hashed.digest()).rstrip(b"=").decode() != digest:
        return f"{path} is not what RECORD says"
    return ""
