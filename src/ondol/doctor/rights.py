"""Who shares a cache directory, judged by the mode of its top; who is kept out by the mode of an entry. Pure."""

import stat

#: Only its owner writes there.
PRIVATE = "private"
#: The members of its group write there.
GROUP = "group"
#: Every user writes there, as in a directory of mode 0777.
EVERYBODY = "everybody"
#: As /tmp: everybody writes there, each their own.
STICKY = "sticky"
OPEN = (EVERYBODY, STICKY)


def sharing(mode: int) -> str:
    if mode & stat.S_IWOTH:
        return STICKY if mode & stat.S_ISVTX else EVERYBODY
    return GROUP if mode & stat.S_IWGRP else PRIVATE


def missing_for_owner(mode: int, *, written: bool) -> int:
    """The bits that an owner needs and has not. `written`: tools write into this very file."""
    if stat.S_ISDIR(mode):
        return stat.S_IRWXU & ~mode
    return (stat.S_IRUSR | (stat.S_IWUSR if written else 0)) & ~mode


def missing_for_group(mode: int, *, written: bool) -> int:
    """The same for the members of the group that shares the cache."""
    if stat.S_ISDIR(mode):
        return stat.S_IRWXG & ~mode
    return (stat.S_IRGRP | (stat.S_IWGRP if written else 0)) & ~mode


def others_can_create(mode: int, gid: int, shared_gid: int | None) -> bool:
    """Whether other users of the cache can make files in a directory: all of them, or those of the sharing group."""
    if mode & stat.S_IWOTH and mode & stat.S_IXOTH:
        return True
    return gid == shared_gid and bool(mode & stat.S_IWGRP and mode & stat.S_IXGRP)
