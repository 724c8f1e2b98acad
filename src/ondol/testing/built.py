"""What a task's `prepare` builds and keeps: found again only while everything that it was built from is the same.

Times of files are not asked: a checkout, a restored cache and a copied tree all have new ones, or old ones. The digest
of the inputs is in the file's name, so that an old binary whose sources changed has a name that nobody looks for, and
no path is ever used for other contents, which the loader would not notice.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


def built(output: Path, inputs: Iterable[object], make: Callable[[Path], object], *, anew: bool) -> Path:
    """`output` with a digest of `inputs` in its name; `make(path)` builds it unless it is there or wanted anew."""
    target = output.with_name(f"{output.stem}-{digest(inputs)[:16]}{output.suffix}")
    if target.exists() and not anew:
        return target
    output.parent.mkdir(parents=True, exist_ok=True)
    with open(output.with_name(f".{output.name}.lock"), "a") as lock:
        with suppress(OSError):  # A file system without locks: two who build the same is only work done twice.
            fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists() and not anew:
            return target
        part = target.with_name(f".{os.getpid()}-{target.name}")
        try:
            make(part)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    return target


def digest(inputs: Iterable[object]) -> str:
    """A `Path` counts with its contents (of a directory: the names and contents of all files below it), not with its
    place, so that another checkout finds the same; anything else with its text.
    """
    whole = hashlib.sha256()
    for one in inputs:
        files = sorted(p for p in one.rglob("*") if p.is_file()) if isinstance(one, Path) and one.is_dir() else [one]
        for file in files:
            name = file.relative_to(one).as_posix() if isinstance(one, Path) and isinstance(file, Path) else "text"
            data = file.read_bytes() if isinstance(file, Path) else str(file).encode()
            whole.update(f"{len(name.encode())} {len(data)} {name}".encode() + data)
        whole.update(b"|")
    return whole.hexdigest()
