"""Which settings files there are, whether each can be believed, and what they say together.

A settings file can name whose code runs and what is overwritten, so it is as good as code. It is used only if the
caller or root owns it, and nobody else can write it or a directory on the way to it, up to the top of the checkout.
Whatever is wrong with a file costs a warning; nothing here stops a command.
"""

import errno
import grp
import os
import pwd
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ondol import config, options
from ondol.config import Settings, SettingsFile
from ondol.foreign_text import printable
from ondol.host import files, identity
from ondol.trust import ci

_LIMIT = 1 << 20
#: Where CI systems put checkouts.
_WORKSPACES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "BUILDKITE_BUILD_CHECKOUT_PATH", "WORKSPACE")


class Unusable(Exception):
    """Why a file is not used."""


def load(flags: Mapping[str, Any], env: Mapping[str, str], directory: str) -> Settings:
    """Every setting: on the command line, in the environment, by the project, the user and the site."""
    found: list[SettingsFile] = []
    warnings: list[str] = []
    for path, top, standing in _places(env, directory):
        if standing != options.OUTSIDE and any(file.standing == standing for file in found):
            continue  # the nearest one counts
        try:
            section = _read(path, top)
        except (Unusable, OSError) as why:
            warnings.append(f"{printable(path)} is not used: {printable(str(why))}")
        else:
            if section is not None:
                found.append(SettingsFile(path, standing, section))
    return config.merge(flags, env, found, directory, warnings)


def _places(env: Mapping[str, str], directory: str) -> Iterator[tuple[str, str, int]]:
    """(path, the highest directory whose owner matters, whose it is), first what counts first."""
    standing = options.PROJECT if ci.on_ci(env) else options.OWN
    top = _top_of_checkout(directory)
    for here in _upwards(directory):
        for name in config.FILES:
            yield os.path.join(here, name), top, standing
        if here == top:
            break
    home = env.get("XDG_CONFIG_HOME", "")
    home = home if os.path.isabs(home) else os.path.join(env.get("HOME", ""), ".config")
    if os.path.isabs(home):
        # On CI, HOME=$WORKSPACE is common: then it comes with the checkout, and is the project's.
        theirs = standing == options.PROJECT and _in_a_checkout(home, env, directory)
        yield os.path.join(home, "ondol", config.FILES[0]), "/", standing if theirs else options.OUTSIDE
    yield config.SITE_FILE, "/", options.OUTSIDE


def _in_a_checkout(path: str, env: Mapping[str, str], directory: str) -> bool:
    above = list(_upwards(os.path.realpath(path)))
    places = [directory, *(env[name] for name in _WORKSPACES if env.get(name))]
    named = any(os.path.realpath(place) in above for place in places)
    return named or any(os.path.lexists(os.path.join(here, ".git")) for here in above)


def _upwards(path: str) -> Iterator[str]:
    yield path
    while path != (path := os.path.dirname(path)):
        yield path


def _top_of_checkout(directory: str) -> str:
    """Where the search ends. Outside any checkout, or in one of somebody else's, that is where it begins."""
    for here in _upwards(directory):
        try:
            owner = os.lstat(os.path.join(here, ".git")).st_uid
        except OSError:
            continue
        return here if owner in (os.geteuid(), 0) else directory
    return directory


def _read(path: str, top: str) -> dict[str, Any] | None:
    """The file's settings; None if there is no such file, or nothing about Ondol in it."""
    in_pyproject = os.path.basename(path) != config.FILES[0]
    try:
        data, status = files.read_regular(path, _LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if in_pyproject:
            return None  # it is everybody's, and most say nothing about us
        raise Unusable("it is a link" if error.errno == errno.ELOOP else error.strerror or str(error))
    # pyproject.toml is nearly everywhere and TOML is slow to import: look before parsing.
    if in_pyproject and b"tool.ondol" not in data:
        return None
    check_owners(path, status, top)
    return _parse(data, in_pyproject)


def check_owners(path: str, status: os.stat_result, top: str = "/") -> None:
    """Raise `Unusable` if anybody else can write this file or a directory on the way to it."""
    _check(path, status)
    here = os.path.dirname(path)
    if os.stat(here).st_mode & stat.S_ISVTX and status.st_nlink > 1:
        raise Unusable(f"it has {status.st_nlink} names (hard links), and others can make such links in {here}")
    for folder in _upwards(here):
        _check(folder, os.stat(folder))
        if folder == top:
            return


def _check(path: str, status: os.stat_result) -> None:
    """Raise `Unusable` if anybody but the caller and root decides what is in this file or directory."""
    owner, mode = status.st_uid, stat.S_IMODE(status.st_mode)
    if owner not in (os.geteuid(), 0) or owner == identity.overflow_uid():
        raise Unusable(f"{path} belongs to user {owner} (fix: sudo chown {os.geteuid()} {path}, if you wrote it)")
    if stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX:
        return  # others can add names here, and cannot take away ours
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _alone_in_group(path, status)):
        raise Unusable(f"others can write {path} (mode {mode:o}; fix: chmod go-w {path})")


def _alone_in_group(path: str, status: os.stat_result) -> bool:
    """With umask 002 everything is group-writable, and the group is the user's own: its only member is the owner."""
    try:
        user, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    try:
        os.getxattr(path, "system.posix_acl_access")
        return False  # then these bits are not the group's, but the most that anybody in the list has
    except OSError:
        return group.gr_name == user and set(group.gr_mem) <= {user}


def _parse(data: bytes, in_pyproject: bool) -> dict[str, Any]:
    try:
        from ondol.host import toml
    except ImportError:
        python = ".".join(map(str, sys.version_info[:2]))
        raise Unusable(f"Python {python} cannot read TOML (fix: pip install tomli, or set ONDOL_* variables)")
    try:
        section = toml.loads(data.decode())
        if in_pyproject:
            section = section.get("tool", {}).get("ondol", {})
    except (ValueError, RecursionError, AttributeError) as error:
        raise Unusable(f"it is not valid TOML: {error}")
    if not isinstance(section, dict):
        raise Unusable("[tool.ondol] is not a table")
    return section
