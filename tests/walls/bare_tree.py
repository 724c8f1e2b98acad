"""A root directory with a Python and its standard library in it, and nothing else: no pip, no passwd, no home."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

PYTHON = Path("/usr/bin/python3")
#: Large, and nothing here uses it.
_LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "ensurepip",
    "lib2to3",
    "pydoc_data",
    "config-3*",
    "*-packages",
)


def build(tree: Path) -> str:
    """Make the tree; returns the path of Python in it. Raises `FileNotFoundError` where the system has no Python.

    With what is compiled, as every image has it: else each process in there would compile all that it imports.
    """
    binary = PYTHON.resolve(strict=True)
    library = Path(f"/usr/lib/{binary.name}")
    shutil.copytree(library, tree / library.relative_to("/"), ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=False)
    _copy(tree, binary)
    for needed in sorted(_libraries([binary, *library.glob("lib-dynload/*.so")])):
        _copy(tree, needed)
    (tree / "usr" / "bin" / "python3").symlink_to(binary.name)
    for folder in ("tmp", "proc", "dev", "sys", "etc", "run", "ondol", "var"):
        (tree / folder).mkdir()
    (tree / "tmp").chmod(0o1777)
    return str(binary)


def add_pytest(folder: Path) -> None:
    """pytest and what it needs, from where this process has it, and nothing else of that place."""
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli"):
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            continue  # only an older Python needs it
        for file in files:
            if not file.parts[0].startswith("..") and "__pycache__" not in file.parts:
                _copy_compiled(Path(str(file.locate())), folder / file)


def _copy_compiled(source: Path, target: Path) -> None:
    """With its time: what is compiled is for a source of that time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    compiled = Path(importlib.util.cache_from_source(str(source))) if source.suffix == ".py" else None
    if compiled and compiled.exists():
        (target.parent / "__pycache__").mkdir(exist_ok=True)
        shutil.copy2(compiled, target.parent / "__pycache__")


def _copy(tree: Path, path: Path) -> None:
    target = tree / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _libraries(files: list[Path]) -> set[Path]:
    listed = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"(/\S+\.so\S*)(?= \(0x)", listed)
    return {Path(name) for name in found if "libzstd" not in name}
