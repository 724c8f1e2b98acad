"""The project's own, the same before and after: the chip's worker, simulated, with the native loader behind it.

CHIP_LOG         a file where every opening of a device and every compilation is noted
CHIP_BAD         the number of a device that cannot be opened
CHIP_FIXED_PATH  the fault of the incident: one path per process for whatever is loaded
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


def note(*words: object) -> None:
    if path := os.environ.get("CHIP_LOG"):
        with open(path, "a", encoding="utf-8") as log:
            log.write(" ".join(map(str, words)) + "\n")


@dataclass(frozen=True)
class ChipCallable:
    """A compiled orchestration: its bytes, and where it begins."""

    function_name: str
    binary: bytes


class ChipWorker:
    """One runtime on one device, opened once."""

    def init(self, device_id: int, host_path: str, aicpu: bytes, aicore: bytes) -> None:
        note("open", Path(host_path).parent.name, device_id, os.getpid())
        if str(device_id) == os.environ.get("CHIP_BAD"):
            raise OSError("set_device failed with code 507899")
        assert aicpu.startswith(b"\x7fELF")
        assert aicore.startswith(b"\x7fELF")
        self._host = ctypes.CDLL(host_path)

    def run(self, callable_: ChipCallable, data: list[float]) -> list[float]:
        path = self._place()
        path.write_bytes(callable_.binary)
        memory = (ctypes.c_double * len(data))(*data)
        error = ctypes.create_string_buffer(300)
        name = callable_.function_name.encode()
        code = self._host.chip_run(str(path).encode(), name, memory, len(data), error, len(error))
        assert code == 0, f"the chip says {code} {error.value.decode()}"
        return list(memory)

    def _place(self) -> Path:
        folder = Path(os.environ.get("TMPDIR", "/tmp"))
        if os.environ.get("CHIP_FIXED_PATH"):
            path = folder / f"orch_so_{os.getpid()}.so"
            path.unlink(missing_ok=True)
            return path
        handle, name = tempfile.mkstemp(prefix="orch_so_", suffix=".so", dir=folder)
        os.close(handle)
        return Path(name)
