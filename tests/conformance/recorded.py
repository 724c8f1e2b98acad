"""Caches rebuilt from recorded file trees, `trees/<tool>.txt`: of tools that cannot run here, and of those that can.

A tree's first lines say which version it was taken from and how. Each other line is a path, a mode and a kind of
content; the content is made here, as the tool's own code would make it.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sqlite3
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import zstandard

from handmade import elf

TREES = Path(__file__).parent / "trees"


def _text(path: str) -> bytes:
    return f"text of {path}\n".encode()


def _sha1(path: str) -> bytes:
    return hashlib.sha1(elf(_text(path))).hexdigest().encode() + elf(_text(path))


def _crc32(path: str) -> bytes:
    body = b"ML\xefR" + _text(path)
    return body + zlib.crc32(body).to_bytes(4, sys.byteorder)


def _driver(path: str) -> bytes:
    key = b"Apr 29 202617:12:06HOST64sm_90.version 8.0\n" + _text(path)
    code = elf(_text(path))
    return struct.pack("<IQQ8s", 0x41, len(key), len(code), b"checksum") + key + code


def _best_config(path: str) -> bytes:
    config = json.dumps({"block_sizes": [64], "num_warps": 4})
    key = {"type": "StrictAutotuneCacheKey", "fields": {"hardware": "NVIDIA H200", "specialization_key": path}}
    return json.dumps({"config": config, "key": key, "flat_config": "[64, 4]"}, indent=2).encode()


def _dependencies(_path: str) -> bytes:
    return json.dumps([["kernels", "csrc/norm.cuh", "0" * 64], ["toolkit", "include/cuda.h", "1" * 64]]).encode()


def _lines(path: str) -> bytes:
    return (
        f"1-64-{len(path)}=miopenConvolutionFwdAlgoGEMM:0.02,0,miopenGEMM,<unused>\n2-3=x:0.1,0,y,<unused>\n".encode()
    )


def _zstd(path: str) -> bytes:
    return zstandard.ZstdCompressor().compress(_text(path) * 50)


def _index(path: str, signatures: int) -> bytes:
    stem = Path(path).name.removesuffix("nbi")
    table = {
        ("sig", n, "x86_64-unknown-linux-gnu", "emeraldrapids"): f"{stem}{n}.nbc" for n in range(1, signatures + 1)
    }
    return pickle.dumps("0.68.1", -1) + pickle.dumps((b"stamp", table), -1)


def _database(path: str) -> bytes:
    return database([path])


def database(keys: list[str]) -> bytes:
    """As `cutile_cache` makes it."""
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        connection = sqlite3.connect(file.name)
        columns = (
            "key TEXT PRIMARY KEY, blob BLOB NOT NULL, blob_size INTEGER NOT NULL, atime REAL NOT NULL, metadata TEXT"
        )
        connection.execute(f"CREATE TABLE cache ({columns})")
        connection.executemany("INSERT INTO cache VALUES (?, ?, 3, 1.0, NULL)", [(key, b"abc") for key in keys])
        connection.commit()
        connection.close()
        return Path(file.name).read_bytes()


KINDS: dict[str, Callable[[str], bytes]] = {
    "text": _text,
    "elf": lambda path: elf(_text(path)),
    "sha1": _sha1,
    "crc32": _crc32,
    "driver": _driver,
    "best_config": _best_config,
    "dependencies": _dependencies,
    "lines": _lines,
    "database": _database,
    "json": lambda path: json.dumps({"of": path}).encode(),
    "pickle": lambda path: pickle.dumps({"of": path}),
    "zlib": lambda path: zlib.compress(_text(path) * 50),
    "zstd": _zstd,
    "index1": lambda path: _index(path, 1),
    "index2": lambda path: _index(path, 2),
}


def _manifest(folder: Path) -> bytes:
    """TileLang's: every file that is there by now."""
    files = {p.name: {"size": p.stat().st_size, "sha256": _sha256(p)} for p in sorted(folder.iterdir())}
    return json.dumps({"version": 1, "files": files}).encode()


def _metadata(folder: Path) -> bytes:
    (binary,) = folder.iterdir()
    fields = {"format": "tilelang.cuda-binary-cache.v1", "size": binary.stat().st_size, "sha256": _sha256(binary)}
    return json.dumps(fields).encode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


#: Kinds of content that speak of the files above them in the tree.
ABOUT = {"manifest": _manifest, "metadata": _metadata}


def rebuild(tool: str, where: Path) -> None:
    for line in (TREES / f"{tool}.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        name, mode, kind = line.split()
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ABOUT[kind](path.parent) if kind in ABOUT else KINDS[kind](name))
        path.chmod(int(mode, 8))
