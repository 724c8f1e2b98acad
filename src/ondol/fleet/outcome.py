"""From what a worker reported about one attempt to that attempt's outcome. Pure: reports are dictionaries here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ondol.fleet.causes import is_device_fault
from ondol.fleet.messages import Ended, How, Report
from ondol.fleet.verdict import Attempt, Cause, Verdict


@dataclass
class Gathered:
    """One attempt while it is going on, and what came of it."""

    item: int
    number: int
    slot: str = ""
    worker: str = ""
    device: str = ""
    warm: bool = False
    started: float = 0.0
    reports: list[Report] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    ending: Ended | None = None
    #: Seconds from its start to its end, by our clock.
    elapsed: float = 0.0
    #: Text of the failure, for the journal and for people.
    text: str = ""

    def cut_off(self, how: How, reason: str) -> Ended:
        """As its agent would have said it, had there been one left to say it."""
        return Ended(self.slot, self.worker, self.item, self.number, how, reason, self.warm)

    @property
    def seconds(self) -> float:
        """What its phases took; of one that was cut off, what passed."""
        if self.ending is not None and self.ending.how != "done":
            return self.elapsed
        return float(sum(r.get("duration", 0.0) for r in self.reports))

    @property
    def phase(self) -> str:
        """The phase that was under way when the worker died."""
        if self.ending is not None and self.ending.phase:
            return self.ending.phase
        seen = {r.get("when") for r in self.reports}
        setup_failed = any(r.get("when") == "setup" and r.get("outcome") != "passed" for r in self.reports)
        if "call" in seen or setup_failed:
            return "teardown"
        return "call" if "setup" in seen else "setup"


def _phase_outcome(report: Report) -> Verdict:
    xfail = "wasxfail" in report
    if report["outcome"] == "skipped":
        return Verdict.XFAILED if xfail else Verdict.SKIPPED
    if report["outcome"] == "passed":
        return Verdict.XPASSED if xfail else Verdict.PASSED
    return Verdict.FAILED if report["when"] == "call" else Verdict.ERROR


def of_reports(reports: Sequence[Report]) -> Verdict:
    """What plain pytest would say: the call decides, a broken setup or teardown is an error."""
    phases = [r for r in reports if r.get("outcome") in {"passed", "failed", "skipped"}]
    outcomes = {r["when"]: _phase_outcome(r) for r in phases if "when" in r}
    bad_calls = [r for r in phases if r["when"] == "call" and r["outcome"] == "failed"]
    if not outcomes:
        return Verdict.ERROR
    if bad_calls:
        return Verdict.FAILED
    if outcomes.get("teardown") is Verdict.ERROR:
        return Verdict.ERROR
    return outcomes.get("call", outcomes.get("setup", Verdict.ERROR))


_BY_ENDING: dict[How, tuple[Verdict, Cause]] = {
    "crashed": (Verdict.CRASHED, Cause.CRASHED),
    "timeout": (Verdict.TIMEOUT, Cause.TIMEOUT),
    "device-lost": (Verdict.DEVICE_LOST, Cause.DEVICE),
    "interrupted": (Verdict.NOT_RUN, Cause.INTERRUPTED),
}


def attempt_of(
    gathered: Gathered, *, dirt_fails: bool = False, cache_fault: Callable[[str], str] = lambda _: ""
) -> Attempt:
    """The attempt as judging sees it; `cache_fault` says what is wrong with a cache, from the text of a failure."""
    outcome, cause, reason = _judge_ending(gathered, dirt_fails)
    if cause is Cause.FAILED and gathered.text:
        fault = cache_fault(gathered.text)
        if fault:
            outcome, cause, reason = Verdict.CACHE_FAULT, Cause.CACHE, fault
    return Attempt(outcome, cause, gathered.warm, gathered.device, reason)


def _judge_ending(gathered: Gathered, dirt_fails: bool) -> tuple[Verdict, Cause, str]:
    ending = gathered.ending
    assert ending is not None
    if ending.how in _BY_ENDING:
        reason = ending.reason or ("interrupted while it ran" if ending.how == "interrupted" else ending.how)
        return *_BY_ENDING[ending.how], reason
    verdict = of_reports(gathered.reports)
    if ending.escaped:
        return Verdict.ERROR, Cause.FAILED, f"escaped pytest: {ending.escaped}"
    if ending.poison:
        # Also when it passed: its kernel failed after the item had looked.
        return verdict if verdict.bad else Verdict.ERROR, Cause.DEVICE, f"left the device unusable: {ending.poison}"
    if verdict.bad:
        cause = Cause.DEVICE if ending.fault or is_device_fault(gathered.text) else Cause.FAILED
        return verdict, cause, _first_line(gathered.text)
    if dirt_fails and ending.dirt:
        kinds = ", ".join(f"{kind}: {what}" for kind, what in ending.dirt)
        return Verdict.ERROR, Cause.FAILED, f"left dirt behind ({kinds})"
    return verdict, Cause.NONE, _why_not(gathered.reports)


def _why_not(reports: Sequence[Report]) -> str:
    """The reason of a skip or an expected failure, as its author gave it."""
    for report in reports:
        if report["outcome"] == "skipped":
            longrepr = report.get("longrepr")
            told = longrepr[-1] if isinstance(longrepr, list | tuple) and longrepr else ""
            return str(report.get("wasxfail") or told).removeprefix("Skipped: ")
    return ""


def _first_line(text: str) -> str:
    """The line of a failure that says what was wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (marked or lines or [""])[0][:300]


def sections_of(gathered: Gathered) -> dict[str, str]:
    """Captured output of an attempt that ended by itself, for the record."""
    found: dict[str, str] = {}
    for report in gathered.reports:
        for name, text in report.get("sections", []):
            found[name] = text[:65536]
    return found


def text_of(report: Report) -> str:
    """A report's failure as text, without a terminal: its exceptions in the order in which they were raised."""
    longrepr = report.get("longrepr")
    if not isinstance(longrepr, dict):
        return str(longrepr or "")
    chain = longrepr.get("chain") or [(longrepr.get("reprtraceback"), longrepr.get("reprcrash"), "")]
    lines: list[str] = []
    for traceback, crash, link in chain:
        lines.append(str((crash or {}).get("message", "")))
        for entry in (traceback or {}).get("reprentries", []):
            data = entry.get("data") or {}
            lines += data.get("lines") or []
            place = data.get("reprfileloc")
            if place:
                lines.append(f"{place['path']}:{place['lineno']}: {place['message']}")
        lines += [link] if link else []
    return "\n".join(lines)
