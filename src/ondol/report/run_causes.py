"""What went wrong in a run, each thing once: failures with the same first cause are one group.

A cause that Ondol knows (`ondol explain`) has a meaning and a cure. The others are told apart by what they say,
whatever its numbers.
"""

from dataclasses import dataclass, field

from ondol.explain import match
from ondol.explain.signature import Signature
from ondol.fleet.record import AttemptRecord, RunRecord
from ondol.fleet.verdict import Verdict
from ondol.foreign_text import alike

_LONGEST = 200


@dataclass
class Group:
    title: str
    #: Of a known fault.
    id: str = ""
    cure: str = ""
    items: list[int] = field(default_factory=list)


def groups(record: RunRecord) -> list[Group]:
    """The largest first, then in the order of the items."""
    found: dict[str, Group] = {}
    for number, item in enumerate(record.items):
        if not (item.bad or item.verdict == Verdict.DEVICE_LOST.value):
            continue
        known = _known(item.attempts[-1]) if item.attempts else None
        said = f"{item.verdict}: {_line(item.why)[:_LONGEST]}"
        group = Group(_line(known.meaning), known.id, _line(known.cure)) if known else Group(said)
        found.setdefault(group.id or alike(said), group).items.append(number)
    return sorted(found.values(), key=lambda group: -len(group.items))


def _line(text: str) -> str:
    return " ".join(text.split())


def _known(attempt: AttemptRecord) -> Signature | None:
    told = [attempt.reason, attempt.text, attempt.dump, *attempt.output.values()]
    return match.judge("\n".join(filter(None, told))).signature
