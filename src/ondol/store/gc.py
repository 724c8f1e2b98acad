"""Carry out a cleaning: remove planned entries, and what dead writers left behind.

Safe beside running jobs and beside other cleanings: an entry is one file, readers copy before they use, and removing
what is already gone is no error. Needs no space: nothing is written.
"""

import os
from typing import NamedTuple

from ondol.host import files, filesystem
from ondol.store import gc_plan, usage
from ondol.store import lane as lanes_of
from ondol.store.directory import DirectoryStore

#: A half-written pack this old has no writer any more: publishing takes seconds. By the file system's own clock.
TMP_AGE = 24 * 3600.0
#: An empty folder younger than this is probably a publisher's, who is about to use it.
FOLDER_AGE = 60.0
#: Bad packs are kept this long for a person to look at.
QUARANTINE_AGE = 7 * 24 * 3600.0


class Cleaned(NamedTuple):
    removed: list[gc_plan.Removal]
    #: Planned, but no longer there or not ours to remove.
    kept: int
    leftovers: int
    total_before: int
    total_after: int
    #: Bytes in lanes of users whose files we may not remove.
    not_ours: int


def clean(store: DirectoryStore, limits: gc_plan.StoreLimits, now: float, *, dry_run: bool) -> Cleaned:
    me = os.geteuid()
    uses = store.last_uses()
    everything = list(store.everything())
    candidates = [
        gc_plan.Removable(stored, max(stored.published, uses.get(stored.address, 0.0)), me in (0, stored.owner))
        for stored in everything
    ]
    total = sum(stored.weight for stored in everything)
    free, _ = filesystem.free_space(store.root_fd())
    planned = gc_plan.plan(candidates, limits, now, free)
    if not dry_run:
        planned.sort(key=lambda removal: (removal.stored.place, removal.stored.address))  # folder by folder
    removed = planned if dry_run else [removal for removal in planned if store.delete(removal.stored)]
    leftovers = 0 if dry_run else _sweep(store, now, {removal.stored.address[:3] for removal in removed})
    return Cleaned(
        removed,
        len(planned) - len(removed),
        leftovers,
        total,
        total - sum(removal.stored.weight for removal in removed),
        sum(candidate.stored.weight for candidate in candidates if not candidate.ours),
    )


def _sweep(store: DirectoryStore, now: float, emptied: set[tuple[str, ...]]) -> int:
    """What dead writers left in lanes that we may clean; then folders and lanes in which nothing is left."""
    removed = 0
    emptied = {path[:depth] for path in emptied for depth in (1, 2, 3)}
    for lane in store.lanes(lambda owner: os.geteuid() in (0, owner)):
        removed += _remove_older(lane, lanes_of.TMP, now - TMP_AGE)
        removed += _remove_older(lane, lanes_of.QUARANTINE, now - QUARANTINE_AGE)
        usage.forget(lane, now)
        _remove_empty(lane, (), emptied, now - FOLDER_AGE)
        store.remove_if_empty(lane)
    return removed


def _remove_empty(lane: lanes_of.Lane, path: tuple[str, ...], emptied: set[tuple[str, ...]], before: float) -> None:
    """Folders that this cleaning emptied, and old ones. Only rmdir is asked, which removes nothing but what is empty; a
    publisher who had just made one makes it again.
    """
    for name in lane.names(*path):
        try:
            status = os.stat(name, dir_fd=lane.folder(*path), follow_symlinks=False)
            if len(path) < 2 and name not in lanes_of.RESERVED:
                _remove_empty(lane, (*path, name), emptied, before)
            if (*path, name) in emptied or status.st_mtime < before:
                os.rmdir(name, dir_fd=lane.folder(*path))
        except OSError as error:
            lanes_of.pass_over(error)


def _remove_older(lane: lanes_of.Lane, name: str, before: float) -> int:
    removed = 0
    try:
        folder = lane.folder(name)
        for item in files.list_names(folder):
            if os.stat(item, dir_fd=folder, follow_symlinks=False).st_mtime < before:
                removed += files.unlink_quietly(item, dir_fd=folder)
    except OSError as error:
        lanes_of.pass_over(error)
    return removed


def store_clock(store: DirectoryStore) -> float | None:
    """What time the store's file system believes it is, or None if it cannot be asked (read-only).

    Ages are compared with this clock and not with ours: a file server that is a day behind must not make every
    half-written pack look abandoned.
    """
    try:
        folder = store.my_lane().make_folder(lanes_of.TMP, mode=0o700)
        os.utime(folder)  # without a time: over NFS, the server takes its own
        return os.fstat(folder).st_mtime
    except Exception:
        return None
