"""What `ondol open` tells `ondol close`: a file beside the inside of the room, where no job can reach it.

It holds what was decided before any of the job's code ran: the settings, the CI event, what was filled. Close believes
it only if it and the room around it belong to the user who closes; what a job leaves inside the room under the same
name is just a file.
"""

import json
import os
import stat
from typing import Any

from ondol.errors import RoomError
from ondol.host import files, process, records
from ondol.room.room import INSIDE, OPEN, OPENER, OWNER, PREFIX, Room

FORMAT = 4
_MAX_BYTES = 256 << 20
_CLOSING = "closing"


def save(room: Room, fields: dict[str, Any]) -> None:
    """Whole or not at all: from here on the room waits for `ondol close` and no longer for this process."""
    known = {"format": FORMAT, "keeps_atime": room.keeps_atime, "seen_as": room.seen_as, **fields}
    files.write_whole(os.path.join(room.path, OPEN), json.dumps(records.plain(known)).encode(), 0o600)
    os.rename(os.path.join(room.path, OWNER), os.path.join(room.path, OPENER))


def take(path: str) -> tuple[Room, dict[str, Any]]:
    """The room and its note, once: whoever asks second is told that there is none. Raises `RoomError`."""
    path = os.path.abspath(path)
    if os.path.basename(path) == INSIDE:
        path = os.path.dirname(path)
    if not os.path.basename(path).startswith(PREFIX):
        raise RoomError(f"{path} is not a room", hint="name the one that `ondol open` opened: $ONDOL_ROOM, --room-file")
    try:
        here = files.open_dir(path)
    except OSError as error:
        raise RoomError(f"there is no open room {path}", because=error.strerror or str(error))
    try:
        _check_owner(path, os.fstat(here))
        os.rename(OPEN, _CLOSING, src_dir_fd=here, dst_dir_fd=here)
        data, status = files.read_regular(_CLOSING, _MAX_BYTES, dir_fd=here)
        _check_owner(f"{path}/{_CLOSING}", status)
        # If we are killed from here on, the next job sweeps the room as it does any dead process' room.
        files.write_new(OWNER, process.myself().encode(), 0o600, dir_fd=here, sync=False)
    except OSError as error:
        why = "it was closed before" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise RoomError(f"the room {path} is not open", because=why)
    finally:
        os.close(here)
    return _parse(path, data)


def _check_owner(path: str, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid() or status.st_mode & files.OTHERS_CAN_WRITE:
        raise RoomError(
            f"{path} is not ours alone",
            because=f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}; we are {os.geteuid()}",
            hint="close a room as the user who opened it",
        )


def _parse(path: str, data: bytes) -> tuple[Room, dict[str, Any]]:
    try:
        fields = records.real(json.loads(data))
        if fields["format"] != FORMAT:
            raise ValueError(f"format {fields['format']}")
        inner = os.path.join(path, INSIDE)
        return Room(path, keeps_atime=fields["keeps_atime"], inner=inner, seen_as=fields["seen_as"]), fields
    except (ValueError, KeyError, TypeError) as error:
        raise RoomError(
            f"the room {path} cannot be closed",
            because=f"its note cannot be read: {error}",
            hint="use one Ondol for both",
        )
