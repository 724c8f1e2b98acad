"""Opens a log, wherever and whatever it is: a file or standard input, plain or gzip, text or JUnit XML."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from ondol.errors import UsageError
from ondol.explain.explainer import Log
from ondol.explain.junit_log import JUnitLog
from ondol.explain.pytest_log import PytestLog

_CHUNK = 1 << 16
#: Of a longer line the rest is not looked at: a log may be one line of gigabytes.
_LONGEST_LINE = 1 << 20
_BROKEN = (OSError, EOFError, zlib.error)


@contextmanager
def open_log(path: str, stdin: Any) -> Iterator[Log]:
    """The log at this path, or on `stdin` (buffered, binary) for `-`. Raises `UsageError`, which says what to do."""
    try:
        with ExitStack() as closing:
            yield _log(path, closing.enter_context(_opened(path, stdin)), closing)
    except _BROKEN as error:
        if isinstance(error, (gzip.BadGzipFile, EOFError, zlib.error)):
            raise UsageError(f"{path} is not a whole gzip file", because=str(error), hint="download it again")
        raise UsageError(f"cannot read the log {path}", because=getattr(error, "strerror", "") or str(error))


def _opened(path: str, stdin: Any) -> Any:
    if path == "-":
        return nullcontext(stdin)
    try:
        return open(path, "rb", buffering=_CHUNK)  # the caller closes it
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory, not a log", hint=f"ondol explain {path}/*.log")


def _log(path: str, stream: Any, closing: ExitStack) -> Log:
    head = stream.peek(4)[:4]
    if head.startswith(b"\x1f\x8b"):
        stream = io.BufferedReader(gzip.GzipFile(fileobj=stream), _CHUNK)
        head = stream.peek(4)[:4]
    if head.startswith(b"PK\x03\x04"):
        raise UsageError(f"{path} is a zip archive", hint=f"unzip -p {path} | ondol explain")
    beginning = stream.peek(_CHUNK)[:_CHUNK].removeprefix(b"\xef\xbb\xbf").lstrip()
    if beginning.startswith((b"<?xml", b"<testsuite")):
        return JUnitLog(iter(lambda: stream.read(_CHUNK), b""))
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    text = io.TextIOWrapper(stream, encoding, errors="replace", newline="\n")
    closing.callback(text.detach)
    return PytestLog(_lines(text))


def _lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(_LONGEST_LINE):
        rest = line
        while rest and not rest.endswith("\n"):
            rest = text.readline(_LONGEST_LINE)
        yield line
