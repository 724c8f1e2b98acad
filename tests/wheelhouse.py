"""Tiny wheels, and a package index on this machine that serves them: real installers need no network to be tested."""

from __future__ import annotations

import base64
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

#: Everything that `import` needs to show that a package is whole.
MODULES = {"__init__.py": b"from .sub.mod import VALUE\n", "sub/__init__.py": b"", "data.bin": bytes(range(256)) * 40}


def make_wheel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A wheel that a real build backend might have made: every file in RECORD, with size and checksum."""
    files = {f"{name}/{path}": data for path, data in MODULES.items()}
    files[f"{name}/sub/mod.py"] = f"VALUE = {name!r}\n".encode() * 30
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{path},{checksum(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, data in files.items():
            archive.writestr(inside, data)
    return path


def checksum(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def make_index(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        wheel = make_wheel(folder / "simple" / name, name)
        (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')


class _Handler(http.server.SimpleHTTPRequestHandler):
    """With the headers that make installers keep what they download."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Silence: what is served is no news."""


@contextmanager
def _running(handler: type[_Handler], folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def serving(folder: Path, served: list[str] | None = None) -> AbstractContextManager[str]:
    """The address of an index of what is in this folder. Every path that is asked for is added to `served`."""

    class Noting(_Handler):
        def do_GET(self) -> None:
            if served is not None:
                served.append(self.path)
            super().do_GET()

    return _running(Noting, folder)


@contextmanager
def stalling(folder: Path) -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """An index that sends half of a wheel and then waits: (address, half has been sent, go on)."""
    half_sent, go_on = threading.Event(), threading.Event()

    class Half(_Handler):
        def copyfile(self, source: Any, outputfile: Any) -> None:
            data = source.read()
            if self.path.endswith(".whl") and not go_on.is_set():
                outputfile.write(data[: len(data) // 2])
                outputfile.flush()
                half_sent.set()
                go_on.wait(120)
                return
            outputfile.write(data)

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # the client was killed, as the test meant it

    with _running(Half, folder) as address:
        yield address, half_sent, go_on
