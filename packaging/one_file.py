"""`make dist`: Ondol as one file, `dist/ondol.pyz`, for machines without pip, network or home directory.

    python3 packaging/one_file.py [--output dist/ondol.pyz] [--without-libzstd]

Inside: our own modules; tomli for Python 3.10; this machine's libzstd, if it has one, which is used only where there is
neither the package `zstandard` nor a libzstd of the system's own. It runs on any Python from 3.10 on, and starts faster
on the version that built it.
"""

from __future__ import annotations

import argparse
import ctypes.util
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAIN = """\
import sys

if sys.argv[1:2] == ["-m"]:
    # As `python -m` does, for the Pythons that Ondol starts (host/own_python.py). Nothing of ours is imported before:
    # pytest wants to rewrite the asserts of plugins.
    import os, runpy

    del sys.argv[:2]
    sys.path.insert(1, os.getcwd())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    from ondol.__main__ import run

    run()
"""
#: A file's time in a zip cannot be older.
EPOCH = 315532800


def build(output: Path, *, with_libzstd: bool = True) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ondol-dist-") as name:
        stage = Path(name)
        shutil.copytree(ROOT / "src" / "ondol", stage / "ondol", ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        add_tomli(stage)
        library = find_libzstd() if with_libzstd else None
        if library:
            (stage / "ondol" / "native").mkdir()
            shutil.copyfile(library, stage / "ondol" / "native" / f"libzstd-{os.uname().machine}.so")
        (stage / "__main__.py").write_text(MAIN)
        compile_all(stage)
        for path in stage.rglob("*"):
            os.utime(path, (EPOCH, EPOCH))  # the same sources make the same bytes
        part = output.with_suffix(".part")
        zipapp.create_archive(stage, part, interpreter="/usr/bin/env python3", compressed=True)
        part.chmod(0o755)
        part.replace(output)
    return output


def compile_all(stage: Path) -> None:
    """For the version of Python that builds this; another one passes over what is not for it and reads the source."""
    for source in sorted(stage.rglob("*.py")):
        # Unchecked: the times of files in a zip are in some time zone, and would make every one of them look stale.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        inside = str(source.relative_to(stage))
        py_compile.compile(str(source), f"{source}c", dfile=inside, doraise=True, invalidation_mode=mode)


def add_tomli(stage: Path) -> None:
    """The pure-Python wheel, whatever Python builds this: 3.10 has no TOML reader."""
    words = ["pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--target", stage]
    words += ["--only-binary", ":all:", "--platform", "any", "--python-version", "3.10", "tomli>=2.0"]
    done = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"without tomli, so on Python 3.10 no configuration file is read: {done.stderr.strip()}", file=sys.stderr)
    for folder in stage.glob("tomli-*"):
        shutil.rmtree(folder)


def find_libzstd() -> Path | None:
    """This machine's own; it needs nothing but the C library."""
    name = ctypes.util.find_library("zstd")
    if name is None:
        return None
    handle = ctypes.CDLL(name)
    handle.ZSTD_versionNumber.restype = ctypes.c_uint
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.search(r"(/\S*libzstd\S*)$", line)
        if found:
            return Path(found.group(1))
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "ondol.pyz")
    parser.add_argument("--without-libzstd", action="store_true", help="a pure one, the same for every processor")
    parsed = parser.parse_args()
    made = build(parsed.output, with_libzstd=not parsed.without_libzstd)
    print(f"{made} ({made.stat().st_size / 1024:.0f} KiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
