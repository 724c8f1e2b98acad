"""Import an existing raw cache into a store: what is readable and complete travels, the rest is reported, nothing is
changed.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ondol.errors import UsageError
from ondol.host import bounded, identity
from ondol.jobs import after
from ondol.room import publish
from ondol.store.api import Backend
from ondol.tools.api import CacheDir, Found, Refused, Tool


class Problem(NamedTuple):
    """Something in the raw cache that a person should know of."""

    #: what `Refused` says, or `foreign` for what belongs to another user: adopted, and a trap for plain use
    kind: str
    path: str
    owner: int
    mode: str
    why: str


class Adopted(NamedTuple):
    outcome: publish.PublishResult
    found: int
    problems: list[Problem]


def adopt(
    store: Backend,
    tool: Tool,
    directory: str,
    scope: str,
    provenance: dict[str, Any],
    progress: Callable[[int, int], None],
    *,
    dry_run: bool,
    sign: publish.Sign | None = None,
) -> Adopted:
    if not os.path.isdir(directory):
        raise UsageError(
            f"{directory} is not a directory", hint="name the cache directory itself, such as ~/.triton/cache"
        )
    cache = CacheDir(os.path.abspath(directory), ours=False)
    # In a helper with bounds: anybody may have filled that directory.
    items = bounded.call(partial(_scan, tool, cache), 3600.0, progress, after.HARVEST_MEMORY)
    found = [item for item in items if isinstance(item, Found)]
    problems = [_problem(cache, *item) for item in items if isinstance(item, Refused)]
    # Entries of other users that a plain job could not write into: the fault behind `PermissionError … tmp.pid_`.
    why = "adopted; without Ondol other users cannot write into it"
    folders = [_problem(cache, "foreign", folder, why) for folder in dict.fromkeys(item.folder for item in found)]
    problems += [one for one in folders if one.owner not in (os.geteuid(), -1) and store.trusts(one.owner, scope)]
    if dry_run:
        return Adopted(publish.PublishResult(), len(found), problems)
    publisher = publish.Publisher(store, tool, cache, scope, provenance, sign)
    outcome = publish.publish(publisher, found, progress, 3600.0)
    problems += [_problem(cache, *refused) for refused in outcome.refused]
    return Adopted(outcome, len(found), problems)


def _scan(tool: Tool, cache: CacheDir, _report: bounded.Report) -> list[Found | Refused]:
    try:
        return list(tool.scan(cache, identity.this_host()))
    except OSError as error:
        raise UsageError(f"{cache.path} cannot be read", because=error.strerror or str(error))


def _problem(cache: CacheDir, kind: str, place: str, why: str) -> Problem:
    try:
        status = os.lstat(os.path.join(cache.path, place))
    except OSError:
        return Problem(kind, place, -1, "?", why)
    return Problem(kind, place, status.st_uid, f"{status.st_mode & 0o7777:04o}", why)
