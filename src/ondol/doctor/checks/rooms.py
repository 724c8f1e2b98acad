"""Whether `ondol run` finds a place for its room, and which one."""

from __future__ import annotations

from collections.abc import Iterator

from ondol.doctor.api import ERROR, NOTE, WARNING, Check, Finding, look, place
from ondol.doctor.subject import MACHINE, Subject
from ondol.errors import RoomError
from ondol.host import filesystem
from ondol.room import choose


class Rooms(Check):
    name = "rooms"
    summary = "no local directory in which `ondol run` can make its private room, or not the one that was asked for"
    roles = frozenset({MACHINE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        tried: dict[str, filesystem.Usable] = {}

        def why_not(path: str) -> str:
            tried[path] = filesystem.try_directory(path)
            return tried[path].why_not

        fix = "ondol run --room-dir DIRECTORY -- COMMAND"
        offers = choose.candidates(subject.machine.room_dir, subject.machine.env)
        try:
            choice = choose.choose(offers, _is_network, why_not)
        except RoomError as error:
            why = "jobs run without a room: with the tools' own caches, as without Ondol"
            yield Finding(self.name, ERROR, f"{error.what}: {error.because}", place("/tmp"), why, fix)
            return
        chosen = choice.candidate.path
        for passed, reason in choice.passed:
            if passed.source == "--room-dir" or filesystem.REPLACE in reason:
                what = f"{passed.source} {passed.path} cannot be used: {reason}"
                yield Finding(self.name, WARNING, what, look(passed.path), f"rooms are made in {chosen} instead", fix)
        if _is_network(chosen):
            what = f"the only place for a room is {chosen}, on a network file system"
            yield Finding(self.name, WARNING, what, look(chosen), "filling and compiling there is slow", fix)
        if not tried[chosen].keeps_atime:
            what = f"reading a file in {chosen} does not move its access time (noatime?)"
            why = "`ondol run` cannot tell which entries were used; nothing else suffers"
            yield Finding(self.name, NOTE, what, look(chosen), why)


def _is_network(path: str) -> bool:
    return filesystem.is_network(filesystem.fs_type(path))
