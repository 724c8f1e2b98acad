"""From what a worker reported about one attempt to that attempt's outcome. Pure: reports are dictionaries here."""

import re
from collections.abc import Callable, Sequence

from ondol.fleet.journal import End
from ondol.fleet.messages import Ended, How, Report
from ondol.fleet.verdict import Cause, Verdict

#: Of texts in the journal.
LIMIT = 65536
#: Vendor → what its runtimes say when the context (not the item's arithmetic) is at fault. Only what leaves a context
#: unusable: an assertion must never be mistaken for it, because the mistake would be retried away.
DEVICE_FAULTS: dict[str, tuple[str, ...]] = {
    "cuda": (
        r"CUDA error: (an illegal memory access|misaligned address|unspecified launch failure|device-side assert)",
        r"CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS|ASSERT|HARDWARE_STACK_ERROR|ECC_UNCORRECTABLE)",
        r"CUDA error: (uncorrectable ECC|CUDA-capable device\(s\) is/are busy|no CUDA-capable device|unknown error)",
        r"cudaErrorDevicesUnavailable",
    ),
    "rocm": (
        r"HIP error: (an illegal memory access|unspecified launch failure)",
        r"HSA_STATUS_ERROR_(EXCEPTION|OUT_OF_REGISTERS)",
    ),
    "ascend": (r"\b(?:error code|ret|code)\D{0,12}(207001|507000|507015|507018|507046|507899)\b",),
    "xpu": (r"UR_RESULT_ERROR_DEVICE_LOST", r"PI_ERROR_DEVICE_LOST", r"ZE_RESULT_ERROR_DEVICE_LOST"),
}

_DEVICE = re.compile("|".join(pattern for patterns in DEVICE_FAULTS.values() for pattern in patterns))


def is_device_fault(text: str) -> bool:
    """Whether the text of a failed or errored attempt shows that its device context was at fault."""
    return bool(_DEVICE.search(text))


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


NOTHING_SAID = (
    "nobody reported on it while it ran: a conftest or plugin with a pytest_runtest_protocol of its own put it off"
)
_BY_ENDING: dict[How, tuple[Verdict, Cause]] = {
    "crashed": (Verdict.CRASHED, Cause.CRASHED),
    "timeout": (Verdict.TIMEOUT, Cause.TIMEOUT),
    "device-lost": (Verdict.DEVICE_LOST, Cause.DEVICE),
    "interrupted": (Verdict.NOT_RUN, Cause.INTERRUPTED),
}


def end_of(
    ending: Ended, text: str, *, dirt_fails: bool = False, cache_fault: Callable[[str], str] = lambda _: ""
) -> End:
    """The attempt as the record has it. `text` is its failure; `cache_fault` finds a cache's fault in such a text."""
    outcome, cause, reason = _judge_ending(ending, text, dirt_fails)
    text = text or ending.escaped
    if cause is Cause.FAILED and text and (fault := cache_fault(text)):
        outcome, cause, reason = Verdict.CACHE_FAULT, Cause.CACHE, fault
    done = ending.how == "done"
    dirt = [*ending.dirt]
    if ending.garbage:
        dirt.append(["descriptor", f"wrote {ending.garbage} bytes to the worker's event channel"])
    end = End(
        ending.item,
        ending.attempt,
        outcome.value,
        cause.value,
        reason,
        # Of one that was cut off the record has the time that passed.
        round(sum(r.get("duration", 0.0) for r in ending.reports), 6) if done else 0.0,
        [{name: r.get(name) for name in _KEPT if name != _NOTED or r.get(_NOTED)} for r in ending.reports],
        dirt=dirt,
        phase="" if done else ending.phase or "setup",
    )
    if not (outcome.bad or outcome.incomplete):
        return end
    output = {**_sections(ending.reports), **ending.output}
    return end._replace(text=text[:LIMIT], dump=ending.dump[:LIMIT], output=output)


_NOTED = "user_properties"
_KEPT = ("when", "outcome", "duration", _NOTED)


def _judge_ending(ending: Ended, text: str, dirt_fails: bool) -> tuple[Verdict, Cause, str]:
    if ending.how in _BY_ENDING:
        reason = ending.reason or ("interrupted while it ran" if ending.how == "interrupted" else ending.how)
        return *_BY_ENDING[ending.how], reason
    verdict = of_reports(ending.reports)
    if ending.escaped:
        # The last line of a traceback says what it was; all of it is the text.
        last = ending.escaped.strip().splitlines()[-1]
        return Verdict.ERROR, Cause.FAILED, f"raised outside of the test, which pytest did not catch: {last}"
    if ending.poison:
        # Also when it passed: its kernel failed after the item had looked.
        return verdict if verdict.bad else Verdict.ERROR, Cause.DEVICE, f"left the device unusable: {ending.poison}"
    if verdict.bad:
        cause = Cause.DEVICE if ending.fault or is_device_fault(text) else Cause.FAILED
        ended = f"ended the session with pytest.exit: {ending.exit[0]}" if ending.exit else NOTHING_SAID
        return verdict, cause, _first_line(text) if ending.reports else ended
    if dirt_fails and ending.dirt:
        kinds = ", ".join(f"{kind}: {what}" for kind, what in ending.dirt)
        return Verdict.ERROR, Cause.FAILED, f"left dirt behind ({kinds})"
    return verdict, Cause.NONE, _why_not(ending.reports)


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


def _sections(reports: Sequence[Report]) -> dict[str, str]:
    """Captured output of phases that ended by themselves."""
    return {name: text[:LIMIT] for report in reports for name, text in report.get("sections", [])}


def failure_of(reports: Sequence[Report]) -> str:
    return "\n".join(text_of(report) for report in reports if report.get("outcome") == "failed")


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
