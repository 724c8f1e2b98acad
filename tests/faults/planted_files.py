"""What an unfriendly user can put into a shared store by hand, and whether a reader falls for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from faults.operations import packs
from handmade import make_entry
from ondol.errors import PackError
from ondol.jobs.open_store import judge
from ondol.store import marker, pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Entry

#: Somebody whom nobody named as a writer.
STRANGER = 12345
_EVIL = b"planted"


def _evil(number: int) -> Entry:
    return make_entry(number, _EVIL)


def _write_lane(lane: Path, number: int, mode: int = 0o755) -> Path:
    """A lane made by hand, with one planted pack."""
    folder = lane / "main" / "triton" / "any"
    folder.mkdir(parents=True)
    (address, data), *_ = packs(_evil(number))
    path = folder / f"{address.key}.pack"
    path.write_bytes(data)
    path.chmod(0o444)
    lane.chmod(mode)
    return lane


def _own(path: Path, uid: int) -> None:
    for here, _, names in os.walk(path):
        for name in [".", *names]:
            os.chown(os.path.join(here, name), uid, uid)


def _open_lane(lanes: Path) -> None:
    _write_lane(lanes / f"{os.geteuid()}-open", 11, 0o777)


def _open_folder(lanes: Path) -> None:
    (_write_lane(lanes / f"{os.geteuid()}-folder", 12) / "main" / "triton").chmod(0o775)


def _open_pack(lanes: Path) -> None:
    (path,) = _write_lane(lanes / f"{os.geteuid()}-pack", 13).glob("main/triton/any/*.pack")
    path.chmod(0o666)


def _linked_lane(lanes: Path) -> None:
    target = _write_lane(lanes.parent.parent / "elsewhere", 14)
    (lanes / f"{os.geteuid()}-link").symlink_to(target)


def _linked_pack(lanes: Path) -> None:
    lane = _write_lane(lanes / f"{os.geteuid()}-packlink", 15)
    (path,) = lane.glob("main/triton/any/*.pack")
    outside = lanes.parent.parent / "outside.pack"
    os.rename(path, outside)
    path.symlink_to(outside)


def _named_after_us(lanes: Path) -> None:
    _own(_write_lane(lanes / f"{os.geteuid()}-named", 16), STRANGER)


def _pack_of_a_stranger(lanes: Path) -> None:
    (path,) = _write_lane(lanes / f"{os.geteuid()}-theirpack", 17).glob("main/triton/any/*.pack")
    os.chown(path, STRANGER, STRANGER)


def _folder_of_a_stranger(lanes: Path) -> None:
    _own(_write_lane(lanes / f"{os.geteuid()}-theirfolder", 18) / "main" / "triton", STRANGER)


PLANTS: dict[str, Callable[[Path], None]] = {
    "a lane that others can write": _open_lane,
    "a folder that others can write": _open_folder,
    "a pack that others can write": _open_pack,
    "a link for a lane": _linked_lane,
    "a link for a pack": _linked_pack,
}
#: These need chown.
FOREIGN_PLANTS: dict[str, Callable[[Path], None]] = {
    "a stranger's lane with our name": _named_after_us,
    "a stranger's pack in our lane": _pack_of_a_stranger,
    "a stranger's folder in our lane": _folder_of_a_stranger,
}


def _reads_evil(path: Path) -> bool:
    """Whether a job of ours would read anything planted, by the default rule of trust."""
    store = DirectoryStore(str(path), judge([]))
    try:
        for stored in store.index("triton", ["main"]):
            try:
                entry = pack.decode(store.fetch(stored), stored.address)
            except (OSError, PackError):
                continue
            if any(bytes(file.data) == _EVIL for file in entry.files):
                return True
        return False
    finally:
        store.close()


def planting_violations(base: Path) -> list[str]:
    """Plant each thing in a store of its own; say which ones a reader falls for."""
    plants = {**PLANTS, **FOREIGN_PLANTS} if os.geteuid() == 0 else PLANTS
    found = []
    for number, (what, plant) in enumerate(plants.items()):
        path = base / f"planted-{number}" / "store"
        marker.create(str(path), marker.Writers(), shared=True)
        plant(path / "lanes")
        if _reads_evil(path):
            found.append(f"{what} is read")
    return found


def stranger_violations(base: Path) -> list[str]:
    """As root: a stranger publishes with our own program, in the ordinary way, and root reads."""
    base.chmod(0o755)
    path = base / "strangers"
    marker.create(str(path), marker.Writers(), shared=True)
    ours = DirectoryStore(str(path), judge([]))
    ours.publish(packs(make_entry(1)))
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            DirectoryStore(str(path), judge([])).publish(packs(_evil(2)))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    found = [] if status == 0 else ["nothing was proved: the stranger could not publish"]
    return [*found, "what the stranger published is read"] if _reads_evil(path) else found
