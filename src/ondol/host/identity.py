"""Who and what we are: user, host, processor, C library; and where this user's own files belong."""

import hashlib
import os
import pwd
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ondol.foreign_text import is_number
from ondol.host import command, process

#: Where `getpass.getuser` looks before it asks the user database.
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


class Host(NamedTuple):
    """What compiled host code depends on, beside its Python."""

    machine: str
    libc: str


def this_host() -> Host:
    return Host(os.uname().machine, _libc())


def _libc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "musl").replace(" ", "-")
    except (ValueError, OSError):
        return "musl"  # which has no such call


def processor_features() -> str:
    """The processor's instruction sets as a short name: equal names run each other's native code."""
    flags = ""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as table:
        for line in table:  # only as far as the first processor: the file of a large node has a megabyte
            if line.startswith(("flags", "Features")):
                flags = " ".join(sorted(line.partition(":")[2].split()))
                break
    return hashlib.sha256(flags.encode()).hexdigest()[:12] if flags else "unknown"


def compiler(env: Mapping[str, str]) -> str:
    """The C++ compiler as its file and size, which differ from version to version; empty if there is none."""
    words = (env.get("CXX") or "g++").split()
    path = command.find(words[0], env) if words else ""
    if not path or not isinstance(path, str):
        return ""
    path = os.path.realpath(path)
    return f"{path} {os.stat(path).st_size}"


def working_directory() -> str:
    """Ours; the root where somebody removed it under us."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


def hostname() -> str:
    return os.uname().nodename


def user_cache_dir() -> str:
    """Where this user's caches live, for any user: also one without a passwd entry, without HOME, with HOME=/.

    The last resort is a directory of /var/tmp named after the UID. Its name can be guessed, so whoever uses it must
    check its owner; the store does, because it believes owners and never names.
    """
    return _user_dir("XDG_CACHE_HOME", ".cache", _is_a_home, f"/var/tmp/ondol-{os.geteuid()}")


def user_config_dir() -> str:
    """Where this user's settings live; one without a home has none, at a place that nobody can make."""
    return _user_dir("XDG_CONFIG_HOME", ".config", os.path.isabs, "/nonexistent")


def user_state_dir() -> str:
    """Where this user's records live; as `user_cache_dir`, whose last resort it shares."""
    return _user_dir("XDG_STATE_HOME", ".local/state", _is_a_home, f"/var/tmp/ondol-{os.geteuid()}")


def _user_dir(variable: str, below: str, is_good: Callable[[str], bool], otherwise: str) -> str:
    configured, home = os.environ.get(variable, ""), os.environ.get("HOME", "")
    if os.path.isabs(configured):
        return configured
    if not is_good(home):
        known = account(os.geteuid())
        home = known.pw_dir if known else ""
    return os.path.join(home, below) if is_good(home) else otherwise


def _is_a_home(path: str) -> bool:
    return os.path.isabs(path) and path != "/" and os.path.isdir(path) and os.access(path, os.W_OK)


def account(uid: int) -> pwd.struct_passwd | None:
    """What the user database knows of this user; None for one that it does not know, as in many containers."""
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def user_name(env: Mapping[str, str]) -> str:
    """The name by which Python programs know this user (`getpass.getuser`); empty for one whom nobody has named."""
    for variable in NAMES:
        if env.get(variable):
            return env[variable]
    known = account(os.getuid())
    return known.pw_name if known else ""


def overflow_uid() -> int | None:
    """The UID that stands for "somebody outside this user namespace", or None where every UID is itself.

    Inside a container with mapped users all foreign owners look like this one, so it can never be evidence of identity.
    """
    whole = process.read("/proc/self/uid_map").split() in ([], ["0", "0", "4294967295"])
    known = process.read("/proc/sys/kernel/overflowuid").strip()
    return int(known) if is_number(known) and not whole else None
