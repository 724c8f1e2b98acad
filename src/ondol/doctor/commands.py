"""Shell commands for people to type: quoted so that a hostile name is neither a command nor a terminal escape. Pure."""

import shlex
import stat
from collections.abc import Iterable

from ondol.store import marker


def quote(path: str) -> str:
    """A path as one word of a shell command. Control characters and foreign bytes are spelt out, as bash reads them."""
    if path.isprintable():
        return shlex.quote(path)
    spelt = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}"
        for byte in path.encode("utf-8", "surrogateescape")
    )
    return f"$'{spelt}'"


def paths(many: Iterable[str]) -> str:
    return " ".join(map(quote, many))


def as_root(uid: int, *commands: str) -> str:
    """The commands, one after the other, for somebody who may have to ask for root's rights first."""
    return " && ".join(command if uid == 0 else f"sudo {command}" for command in commands)


def find(path: str, tests: str, action: str, *, plain: bool, end: str = "+") -> str:
    """Do something to all that is like this below `path`, except in stores of Ondol's, which it would break.

    `plain`: there is no store.
    """
    around = "" if plain else f"-type d -exec test -e {{}}/{marker.NAME} \\; -prune -o "
    return f"find {quote(path)} -xdev {around}{tests} -exec {action} {{}} {end}"


def throughout(path: str, command: str, *, plain: bool) -> str:
    """The same to everything but what somebody may have put there to have it opened: a file of root's that is closed to
    others, a file with another name elsewhere, a link.
    """
    return find(path, r"\( -type d -o -type f -links 1 \( ! -uid 0 -o -perm -4 \) \)", command, plain=plain)


def share_with_group(uid: int, path: str, gid: int, *, plain: bool) -> str:
    """Make a tree the group's: what is in it, and what will be made in it. Nobody else writes there."""
    both = f"chgrp {gid} {{}} + -exec chmod g+rwX,o-w"
    return as_root(uid, throughout(path, both, plain=plain), find(path, "-type d", "chmod g+s", plain=plain))


def bits(mode: int, sign: str = "+") -> str:
    """Mode bits as chmod reads them: `u+rwx,g+rws`."""
    held = {
        who: stat.filemode(mode & part)[1:].replace("-", "") for who, part in (("u", 0o700), ("g", 0o070), ("o", 7))
    }
    held["g"] += "s" if mode & stat.S_ISGID else ""
    held[""] = "t" if mode & stat.S_ISVTX else ""
    return ",".join(f"{who}{sign}{letters}" for who, letters in held.items() if letters)
