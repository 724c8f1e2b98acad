"""The page of the checks, made from their own summaries."""

from __future__ import annotations

from collections.abc import Sequence

from ondol.doctor.api import SEVERITIES
from ondol.doctor.registry import CHECKS
from ondol.doctor.subject import ROLES

_HEAD = """# `ondol doctor`

Made from the checks by `python docs/made`; a test compares.

```
ondol doctor [PATH …] [--fix] [--dry-run] [--strict] [--json] [--list] [--only NAMES] [--skip NAMES]
             [--limit N] [--walk-time TIME] [--timeout TIME] [--store PATH] [--trust UIDS] [--room-dir DIR]
```

Without PATH it looks at what a job of this user would use: the store, the tools' caches, HOME, TMPDIR, the places for
a room, and the machine. With PATH it looks at these directories: one with an `ondol-store.json` is a store, `/tmp` and
its like are temporary space, anything else is a cache, of a tool that Ondol understands if its entries look like it.

A directory is walked once, nearest first, to the leaves, or until `--limit` files and directories or `--walk-time`: an
early end is a finding. Links are not followed, other file systems not entered. What touches a file system runs in a
helper process with a deadline (`--timeout`): a dead server is a finding, not a hang. Probes are made in a directory
`.ondol-probe-…` of their own, and removed.

"""
_FIX = """It does what `--dry-run` shows and nothing else: to files and directories that belong to the caller, reached
without passing a link, if they are still the ones that were looked at and have no second name elsewhere. Owners and
groups are never changed and nobody else's file is removed, for root neither; for that, the finding has the command to
type. Afterwards everything is looked at again: the report and the status are about what is left."""
_WALK = """What the walk itself has to say (an early end, a file system that was not entered) comes under `walk`.
Where a PATH cannot be reached, `reach` says so, whatever was asked for. What is looked at:
"""
_STATUS = {"error": "1", "warning": "0; 1 with `--strict`", "note": "0"}
#: Field of the JSON → what it holds.
_JSON = {
    "`format`": "`ondol-doctor/1`",
    "`host`, `uid`": "where and as whom",
    "`healthy`": "no errors",
    "`errors`, `warnings`, `notes`": "how many findings of each severity",
    "`examined`": "the subjects: `path` (empty for the machine), `roles`, `state` (directory, missing, file, "
    "unreachable, hangs), `tool`, `file_system`, `entries` and `size` (walked; -1 if not), `stopped` (why the walk "
    "ended early)",
    "`findings`": "`subject`, `check`, `severity`, `what`, `where` (`path`, `owner`, `group`, `mode`; -1 and empty "
    "where there is nothing to ask), `why`, `fix` (the command to type; may be empty), `places` (how many are like "
    "it), `safe` (whether `--fix` may do it for this caller)",
    "`repairs`": "with `--fix` or `--dry-run`: `action` (chmod, remove), `path`, `command`, `done`, `refused` (why it "
    "was left alone)",
}


def page() -> str:
    severities = [(name, meaning, _STATUS[name]) for name, meaning in SEVERITIES.items()]
    checks = [(f"`{check.name}`", check.summary, _roles(check.roles), check.fixes) for check in CHECKS.values()]
    return "\n".join(
        [
            _HEAD + _table(("severity", "meaning", "exit status"), severities),
            "\nStatus 2 is wrong usage.\n\n## Checks\n",
            _table(("check", "finds", "looks at", "`--fix`"), checks),
            f"\n{_WALK}\n",
            _table(("", "is"), list(ROLES.items())),
            f"\n## `--fix`\n\n{_FIX}\n\n## `--json`\n",
            _table(("field", "holds"), list(_JSON.items())),
            "",
        ]
    )


def _roles(held: frozenset[str]) -> str:
    return ", ".join(role for role in ROLES if role in held)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)
