"""Who is to blame, the item or the device? Decided on evidence only, and always with a reason. Pure.

A device is set aside when its health probe fails, when its worker cannot even start there, or when several *different*
items went badly on it and then passed elsewhere. One item that fails everywhere says nothing about any device: that
rule is why a deterministic failure can never burn the whole rack.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Ledger:
    """What each device did to which item."""

    #: So many distinct items must have gone badly here and well elsewhere.
    evidence_needed: int = 3
    #: So many starts in a row may fail before the device is given up.
    failed_starts_allowed: int = 2
    _bad: dict[int, set[str]] = field(default_factory=dict)
    _evidence: dict[str, list[int]] = field(default_factory=dict)
    _failed_starts: dict[str, int] = field(default_factory=dict)
    _failed_inits: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)

    def attempt(self, work: int, device: str, good: bool) -> list[tuple[str, str]]:
        """Record one attempt; returns the devices that it condemns, each with the reason."""
        if not good:
            self._bad.setdefault(work, set()).add(device)
            return []
        self._failed_inits[device] = 0
        condemned = []
        for other in sorted(self._bad.get(work, set()) - {device}):
            seen = self._evidence.setdefault(other, [])
            if work not in seen:
                seen.append(work)
            if len(seen) >= self.evidence_needed:
                condemned += self._condemn(other, f"{len(seen)} different items went badly here and passed elsewhere")
        return condemned

    def started(self, device: str) -> None:
        self._failed_starts[device] = 0

    def start_failed(self, device: str, why: str) -> list[tuple[str, str]]:
        self._failed_starts[device] = self._failed_starts.get(device, 0) + 1
        if self._failed_starts[device] < self.failed_starts_allowed:
            return []
        return self._condemn(device, f"no worker could start here, {self._failed_starts[device]} times in a row: {why}")

    def init_failed(self, device: str, why: str) -> list[tuple[str, str]]:
        """A runtime could not be opened here; any good attempt in between forgives."""
        self._failed_inits[device] = self._failed_inits.get(device, 0) + 1
        if self._failed_inits[device] < self.failed_starts_allowed:
            return []
        return self._condemn(
            device, f"no runtime could be opened here, {self._failed_inits[device]} times in a row: {why}"
        )

    def probe_failed(self, device: str, why: str) -> list[tuple[str, str]]:
        return self._condemn(device, f"health probe failed: {why}")

    def unreapable(self, device: str, why: str) -> list[tuple[str, str]]:
        return self._condemn(device, f"a killed process would not end: {why}")

    def node_out(self, device: str, node: str, why: str) -> list[tuple[str, str]]:
        return self._condemn(device, f"node {node} is left out: {why}")

    def witnesses(self, device: str) -> list[int]:
        """The items whose attempts speak against `device`."""
        return list(self._evidence.get(device, []))

    def _condemn(self, device: str, why: str) -> list[tuple[str, str]]:
        if device in self.quarantined:
            return []
        self.quarantined[device] = why
        return [(device, why)]
