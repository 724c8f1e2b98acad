"""Earlier runs: where they are kept, whose are believed (the same owners whose entries are read from the store), and
what they say about this one: which items it is for (`--rerun`, `--shard`), and which failures it forgives.
"""

import os
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from ondol import units
from ondol.config import Settings
from ondol.errors import OndolError, UsageError
from ondol.fleet import journals, kept, known, past, selection
from ondol.fleet.journal import Known
from ondol.fleet.record import RunRecord, load
from ondol.foreign_text import is_number
from ondol.host import bounded, files, identity
from ondol.host.command import asked

#: Seconds for a shared directory to take one file.
_PATIENCE = 30.0
#: Runs whose durations count.
_RUNS = 20
#: Names in a message.
_SHOWN = 5


def settings() -> Settings:
    """Without a command line: the variables and the files."""
    from ondol.trust import settings  # most runs need none of the cache wing in this process

    return settings.load({}, os.environ, identity.working_directory())


def believed(found: Settings) -> kept.Believes:
    """With a store, its writers too; one that cannot be opened vouches for nobody."""
    from ondol.jobs.open_store import open_store
    from ondol.trust import owners

    if found.store:
        try:
            return open_store(found).trusts
        except OndolError:
            pass
    return partial(owners.believes, owners.Reader(os.geteuid(), frozenset(found.trust), identity.overflow_uid()))


def keep(journal: Path, where: str, record: RunRecord | None = None) -> str:
    """Returns what is wrong, in words. A directory that does not answer costs some patience and no run."""
    if not journal.exists():
        return ""
    if not where:
        return kept.keep(journal, record=record)
    try:
        return str(bounded.call(lambda _report: kept.keep(journal, where, record), _PATIENCE))
    except OndolError as error:
        return f"this run is not in the history in {where}: {error} (fix: --history DIR, one that answers)"


def earlier(name: str, history: str, root: Path) -> RunRecord:
    """The run that `--rerun` means; `latest` is this project's last one, if it is known. Raises `UsageError`."""
    found = settings()
    where, believes = history or found.history, believed(found)
    latest = kept.latest(where, believes, str(root)) if name == journals.LATEST else None
    return load(latest or journals.find(Path(name), where, believes))


def rerun(record: RunRecord, ids: list[str], root: Path) -> tuple[list[int], list[str]]:
    """Places in the collected list, and what to say about them."""
    places, gone = selection.again(record, ids)
    told = [f"rerun: {len(places)} of {len(ids)} items, which failed, were not run or were flaky in that run"]
    if gone and not places:
        told.append(f"rerun: none of them is collected here: that run's rootdir was {record.run.root}, this is {root}")
    if gone:
        more = f" and {len(gone) - _SHOWN} more" if len(gone) > _SHOWN else ""
        told.append(f"rerun: no longer there, or not collected by these arguments: {', '.join(gone[:_SHOWN])}{more}")
    if not gone and not places:
        told.append(f"rerun: nothing is left to run of that run's {units.plural(len(record.items), 'item')}")
    return places, told


def shard(text: str, ids: list[str], history: str, root: Path) -> tuple[list[int], list[str]]:
    """The same for one part of several. Every part must be made from the same durations, whenever and wherever it
    starts: so only a history that was named counts, and in it the runs before the commit that all have checked out.
    """
    number, parts = selection.parse_shard(text)
    seconds, how = _durations(history, root)
    found = selection.part(ids, seconds, number, parts)
    told = f"shard {number}/{parts}: {len(found.places)} of {len(ids)} items"
    if found.timed:
        told += f", {units.seconds(found.weight)} of {units.seconds(found.total)}"
    return found.places, [f"{told}, {how}; plan {found.plan}, the same in every shard"]


def _durations(history: str, root: Path) -> tuple[dict[str, float], str]:
    configured = settings()
    where = history or configured.history
    if not where:
        return {}, "by count (--history DIR, which all shards can read, balances by duration)"
    committed = asked(["git", "-C", str(root), "log", "-1", "--format=%ct"], 30.0)
    if not is_number(committed):
        return {}, f"by count ({root} is no git checkout, and shards must agree on which runs of the history count)"
    runs, _ = kept.runs(where, believed(configured))
    counted = past.newest(runs, float(committed), _RUNS)
    return past.usual(past.fold(counted)), f"by the durations of {units.plural(len(counted), 'run')} before this commit"


def known_entries(root: Path) -> list[known.KnownFailure]:
    """Raises `UsageError` for a file that cannot be understood: nobody knows then what it was to forgive."""
    path = root / known.FILE
    if not path.exists():
        return []
    from ondol.host import toml  # few projects have such a file

    try:
        data, _ = files.read_regular(str(path), known.LARGEST)
        told = toml.loads(data.decode())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read; nothing was run", because=why, hint="mend it, or --no-known")
    return known.entries(told)


def muted(
    entries: list[known.KnownFailure], ids: list[str], collected: list[str], root: Path
) -> tuple[Known, list[str]]:
    today = datetime.now(timezone.utc).date()
    return known.judge(entries, ids, collected, lambda file: (root / file).exists(), today)
