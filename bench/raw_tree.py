"""A raw Triton cache of 2,000 real entries: a few dozen compiled here, cloned under fresh keys.

Cloning keeps what matters for packing and filling: the number, names, sizes and contents of files. Each clone's group
file names its own children, as Triton would have written it, so that scanning and publishing do their whole work.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sys
from pathlib import Path

from bench import measure

ENTRIES = 2000
_GROUP = "__grp__"


def raw_tree(count: int = ENTRIES) -> Path:
    """The tree, made on first use and kept in `.build/`."""
    tree = measure.BUILD / f"raw-{count}"
    if tree.is_dir():
        return tree
    part = tree.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    originals = sorted(_originals().iterdir())
    for number in range(count):
        _clone(originals[number % len(originals)], part / key_of(number), tree / key_of(number))
    part.rename(tree)
    return tree


def _originals() -> Path:
    """Entries that Triton itself has written, kept too: compiling them takes half a minute."""
    folder = measure.BUILD / "compiled"
    if not folder.is_dir():
        part = folder.with_suffix(".part")
        env = measure.environment(TRITON_CACHE_DIR=str(part))
        measure.wall([sys.executable, "-m", "bench.kernels", "variants"], env)
        part.rename(folder)
    return folder


def key_of(number: int) -> str:
    """52 letters of base32, as Triton's keys are."""
    digest = hashlib.sha256(b"bench %d" % number).digest()
    return base64.b32encode(digest).decode().rstrip("=")


def _clone(original: Path, target: Path, final: Path) -> None:
    target.mkdir(parents=True)
    for file in sorted(original.iterdir()):
        if not file.name.startswith(_GROUP):
            shutil.copyfile(file, target / file.name)
    for group in original.glob(f"{_GROUP}*"):
        children = json.loads(group.read_bytes())["child_paths"]
        bound = {child: str(final / child) for child in children}
        (target / group.name).write_text(json.dumps({"child_paths": bound}))
