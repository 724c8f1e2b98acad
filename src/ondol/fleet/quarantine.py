"""Who is to blame, the item or the device? Decided on evidence only, and always with a reason. Pure.

A device is set aside when its health probe fails, when its worker cannot even start there, or when several *different*
items went badly on it and then passed elsewhere. One item that fails everywhere says nothing about any device: that
rule is why a deterministic failure can never burn the whole rack.
"""

from dataclasses import dataclass, field

#: What fails in a row; and so many times are too many.
STARTING, OPENING = "no worker could start", "no runtime could be opened"
FAILURES_ALLOWED = 2


@dataclass
class Ledger:
    """What each device did to which item."""

    #: So many distinct items must have gone badly here and well elsewhere.
    evidence_needed: int = 3
    _bad: dict[int, set[str]] = field(default_factory=dict)
    #: Device → the items whose attempts speak against it.
    witnesses: dict[str, list[int]] = field(default_factory=dict)
    #: (What, where) → how often it failed in a row.
    _failures: dict[tuple[str, str], int] = field(default_factory=dict)

    def attempt(self, work: int, device: str, good: bool) -> list[tuple[str, str]]:
        """Record one attempt; returns the devices against which that is evidence enough, each with the reason."""
        if not good:
            self._bad.setdefault(work, set()).add(device)
            return []
        self.worked(OPENING, device)
        condemned = []
        for other in sorted(self._bad.get(work, set()) - {device}):
            seen = self.witnesses.setdefault(other, [])
            if work not in seen:
                seen.append(work)
            if len(seen) >= self.evidence_needed:
                condemned.append((other, f"{len(seen)} different items went badly here and passed elsewhere"))
        return condemned

    def worked(self, what: str, device: str) -> None:
        self._failures[what, device] = 0

    def failed(self, what: str, device: str, why: str) -> str:
        """`what` cannot be done there. Once is forgiven (empty), and whatever works in between forgives all."""
        times = self._failures[what, device] = self._failures.get((what, device), 0) + 1
        return f"{what} here, {times} times in a row: {why}" if times >= FAILURES_ALLOWED else ""
