"""Looking at directories: in this process for what needs no other user, as a real command for the rest."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from handmade import trust_everybody
from ondol.doctor import examine, gather, registry
from ondol.doctor.api import Finding
from ondol.doctor.subject import Machine, the_machine
from ondol.doctor.walk import Bounds

#: Nobody in the user database of a Debian machine.
UID, OTHER = 2001, 2002


def machine(env: dict[str, str] | None = None, store: Path | str = "/nonexistent/store", **options: Any) -> Machine:
    me = {"uid": os.geteuid(), "gid": os.getegid(), "groups": frozenset([os.getegid(), *os.getgroups()])}
    fixed = {"store_is_set": True, "judge": trust_everybody, "trusted": (), "room_dir": ""}
    return Machine(env={"PATH": os.environ["PATH"], **(env or {})}, store=str(store), **{**me, **fixed, **options})


def look(
    path: Path | str, *checks: str, bounds: Bounds | None = None, patience: float | None = None, **options: Any
) -> list[Finding]:
    """What these checks find there."""
    subjects = gather.subjects(machine(**options), [str(path)], bounds or Bounds())
    found = examine.examine(subjects, registry.choose(list(checks), []), lambda *_: None, patience)
    return [finding for one in found for finding in one.findings]


def look_at_machine(here: Machine, *checks: str) -> list[Finding]:
    (found,) = examine.examine([the_machine(here)], registry.choose(list(checks), []), lambda *_: None)
    return found.findings


class Said:
    """What a run of `ondol doctor --json` said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.stderr = done.returncode, done.stderr
        assert done.stdout.startswith("{"), (done.stdout, done.stderr)
        self.json: dict[str, Any] = json.loads(done.stdout)

    def of(self, check: str, severity: str = "") -> list[dict[str, Any]]:
        return [
            finding
            for finding in self.json["findings"]
            if finding["check"] == check and severity in ("", finding["severity"])
        ]


Doctor = Callable[..., Said]


def give(path: Path, uid: int, gid: int | None = None) -> None:
    """All of it to another user."""
    for item in [path, *path.rglob("*")]:
        os.chown(item, uid, uid if gid is None else gid, follow_symlinks=False)


def type_in(command: str) -> None:
    """What a person does with a printed command, with root's rights where it asks for them."""
    subprocess.run(["bash", "-c", command.replace("sudo ", "")], check=True, capture_output=True)


def acl_bytes(named: list[tuple[str, int, int]], *, owner: int, group: int, mask: int, other: int) -> bytes:
    """An access control list as the kernel keeps it: (user or group, number, rwx as 4, 2, 1) of each that is named."""
    tags, anybody = {"user": 0x02, "group": 0x08}, 0xFFFFFFFF
    rows = [(tags[kind], granted, number) for kind, number, granted in named]
    rows += [(0x01, owner, anybody), (0x04, group, anybody), (0x10, mask, anybody), (0x20, other, anybody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in sorted(rows))
