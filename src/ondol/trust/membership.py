"""Asks the machine's user database who is in which group; remembers the answers for one job."""

import grp
import os
import pwd
from functools import lru_cache

from ondol.words import is_number


@lru_cache(maxsize=4096)
def is_member(uid: int, group: str) -> bool:
    """False for anyone the database does not know; a lane's own group proves nothing (setgid hands it out)."""
    try:
        wanted = int(group) if is_number(group) else grp.getgrnam(group).gr_gid
        user = pwd.getpwuid(uid)
        return wanted in os.getgrouplist(user.pw_name, user.pw_gid)
    except (KeyError, OSError):
        return False
