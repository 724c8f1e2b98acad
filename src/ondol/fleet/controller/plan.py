"""From collected pytest items to planned work: markers, deadlines, estimates."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ondol.errors import UsageError
from ondol.fleet import pytest_inside, xdist
from ondol.fleet.devices import parse_memory
from ondol.fleet.model import Work

_KNOWN = {"devices", "group", "timeout", "memory", "isolate", "runtime"}


@dataclass
class Plan:
    """Everything that is to be run."""

    works: list[Work] = field(default_factory=list)
    #: Work that prepares a task → the task's item.
    prepares: dict[int, int] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """Of the items, in their order."""
        return [work.nodeid for work in self.works if work.index not in self.prepares]


def make_plan(
    session: pytest.Session,
    history: dict[str, float],
    *,
    timeout: float,
    grace: float,
    isolate: bool,
    dist: str = "no",
) -> Plan:
    plan = Plan()
    wanted = [wishes_of(item) for item in session.items]
    groups = xdist.groups([_ties(item, dist, wishes) for item, wishes in zip(session.items, wanted, strict=True)])
    for index, (item, wishes) in enumerate(zip(session.items, wanted, strict=True)):
        needs_prepare = bool(getattr(item, "ondol_prepare", None))
        after = len(session.items) + index if needs_prepare else None
        plan.works.append(
            Work(
                index,
                module=str(getattr(item, "ondol_unit", "") or item.nodeid.split("::")[0]),
                estimate=history.get(item.nodeid),
                devices=int(wishes.get("devices", 1)),
                group=groups[index],
                memory=parse_memory(wishes.get("memory") or 0),
                isolate=isolate or bool(wishes.get("isolate")),
                runtime=str(getattr(item, "ondol_runtime", "") or wishes.get("runtime", "")),
                params=pytest_inside.wide_params(item),
                after=after,
                nodeid=item.nodeid,
                timeout=_deadline(item, wishes, timeout, grace),
            )
        )
        if after is not None:
            plan.prepares[after] = index
    plan.works = _parted(plan.works)
    plan.works += [Work(work, module="prepare", devices=0) for work in plan.prepares]
    return plan


def _parted(works: list[Work]) -> list[Work]:
    """Parameters that only one module knows part nobody: that module's own fixtures are better made once."""
    modules: dict[str, set[str]] = {}
    for work in works:
        modules.setdefault(work.params, set()).add(work.module)
    return [work if len(modules[work.params]) > 1 else replace(work, params="") for work in works]


def wishes_of(item: pytest.Item) -> dict[str, Any]:
    """The marker's arguments; the nearest one wins."""
    found: dict[str, Any] = {}
    for marker in item.iter_markers("ondol"):
        unknown = set(marker.kwargs) - _KNOWN
        if unknown or marker.args:
            raise UsageError(
                f"{item.nodeid}: mark.ondol takes {', '.join(sorted(_KNOWN))} by name",
                because=f"{unknown or marker.args}",
            )
        found = {**marker.kwargs, **found}
    if int(found.get("devices", 1)) < 1:
        raise UsageError(f"{item.nodeid}: mark.ondol(devices=…) must be at least 1")
    return found


def _ties(item: pytest.Item, dist: str, wishes: dict[str, Any]) -> list[str]:
    """Suites that were marked for xdist keep their meaning, whatever `--dist` says."""
    marker = item.get_closest_marker("xdist_group")
    theirs = "" if marker is None else marker.args[0] if marker.args else marker.kwargs.get("name", "")
    return xdist.ties(item.nodeid, dist, str(wishes.get("group", "")), str(theirs))


def _deadline(item: pytest.Item, wishes: dict[str, Any], default: float, grace: float) -> float:
    own = wishes.get("timeout")
    if own is not None:
        return float(own)
    if item.config.pluginmanager.hasplugin("timeout"):
        # It gets the chance to fail the item from inside first.
        value = pytest_inside.plugins_timeout(item)
        return default if value is None else value + grace if value else 0.0
    marker = item.get_closest_marker("timeout")
    given = (marker.args[0] if marker.args else marker.kwargs.get("timeout")) if marker is not None else None
    return default if given is None else float(given)
