"""Shell commands for people to type: quoted so that a hostile name is neither a command nor a terminal escape. Pure."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterable

_LETTERS = (
    ("u", ((stat.S_IRUSR, "r"), (stat.S_IWUSR, "w"), (stat.S_IXUSR, "x"))),
    ("g", ((stat.S_IRGRP, "r"), (stat.S_IWGRP, "w"), (stat.S_IXGRP, "x"), (stat.S_ISGID, "s"))),
    ("o", ((stat.S_IROTH, "r"), (stat.S_IWOTH, "w"), (stat.S_IXOTH, "x"))),
)


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


def share_with_group(uid: int, path: str, gid: int) -> str:
    """Make a tree the group's: what is in it, and what will be made in it. Nobody else writes there."""
    word = quote(path)
    return as_root(
        uid,
        f"chgrp -Rh {gid} {word}",
        f"chmod -R g+rwX,o-w {word}",
        f"find {word} -xdev -type d -exec chmod g+s {{}} +",
    )


def bits(mode: int, sign: str = "+") -> str:
    """Mode bits as chmod reads them: `u+rwx,g+rws`."""
    parts = []
    for who, letters in _LETTERS:
        held = "".join(letter for bit, letter in letters if mode & bit)
        if held:
            parts.append(f"{who}{sign}{held}")
    if mode & stat.S_ISVTX:
        parts.append(f"{sign}t")
    return ",".join(parts)
