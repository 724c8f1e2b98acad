"""An explanation in words: the first line says it all, then each cause once, with its evidence and its cure. Pure."""

import textwrap
from collections.abc import Sequence
from typing import Any

from ondol import units
from ondol.explain import noise
from ondol.explain.explainer import Explanation, Fault
from ondol.foreign_text import printable

_WIDTH = 110
#: As many names are listed unless all are asked for.
_FEW = 5
_MOST_EVIDENCE = 300


def text(explanation: Explanation, *, every_name: bool = False) -> str:
    blocks = [_headline(explanation)]
    blocks += [_fault(fault, every_name) for fault in explanation.faults]
    if explanation.unexplained and explanation.faults:
        title = (
            f"{_tests(len(explanation.unexplained))} failed and {_match(len(explanation.unexplained))} nothing known"
        )
        blocks.append("\n".join([title, *_names(explanation.unexplained, every_name)]))
    if explanation.warnings:
        lines = [_warning(fault) for fault in explanation.warnings]
        blocks.append("\n".join(["Also seen, and survived by the tool that says so:", *lines]))
    blocks += explanation.troubles
    return "\n\n".join(blocks)


def _headline(explanation: Explanation) -> str:
    failed, faults = explanation.failed, explanation.faults
    if not faults:
        of_tests = f": {_tests(failed)} failed, and {_match(failed)} nothing known" if failed else ""
        return f"Nothing known explains this{of_tests}."
    if not failed:
        return f"{units.plural(len(faults), 'known fault')}."
    in_tests = [fault for fault in faults if fault.tests]
    rest = len(explanation.unexplained)
    if len(in_tests) == len(faults) == 1 and not rest:
        return f"{_tests(failed)} failed from one fault: {in_tests[0].signature.id}."
    counts = [f"{len(fault.tests)} from {fault.signature.id}" for fault in in_tests]
    counts += [f"{rest} {_match(rest)} nothing known"] if rest else []
    elsewhere = len(faults) - len(in_tests)
    outside = f"; {units.plural(elsewhere, 'known fault')} outside of tests" if elsewhere else ""
    return f"{_tests(failed)} failed: {', '.join(counts)}{outside}."


def _fault(fault: Fault, every_name: bool) -> str:
    known = fault.signature
    count = _tests(len(fault.tests)) if fault.tests else f"seen {units.plural(fault.times, 'time')}, in no test"
    lines = [f"{known.id} ({known.tool}): {count}"]
    lines += _labelled("what", known.meaning)
    lines += [f"  {'where':<8} {_place(fault)}", f"  {'':<8} {evidence(fault.line)}"]
    lines += _labelled("do", known.cure)
    lines += _labelled("source", known.source)
    lines += _names(fault.tests, every_name, "tests")
    return "\n".join(lines)


def _labelled(label: str, value: str) -> list[str]:
    filled = textwrap.wrap(value, _WIDTH - 11, break_long_words=False, break_on_hyphens=False)
    return [f"  {label if number == 0 else '':<8} {line}" for number, line in enumerate(filled)]


def _names(names: Sequence[str], every_name: bool, label: str = "") -> list[str]:
    shown = list(map(printable, names if every_name else names[:_FEW]))
    if len(shown) < len(names):
        shown.append(f"… and {len(names) - len(shown)} more (--all)")
    return [f"  {label if number == 0 else '':<8} {name}" for number, name in enumerate(shown)]


def _warning(fault: Fault) -> str:
    times = units.plural(fault.times, "time")
    return "\n".join(
        [f"  {fault.signature.id}: {times}, first in {_place(fault)}", *_labelled("", fault.signature.meaning)]
    )


def _place(fault: Fault) -> str:
    return f"{fault.log}:{fault.line_number}"


def evidence(line: str) -> str:
    """The line without what the CI system wrote around it, safe for a terminal, and not too long."""
    shown = printable(noise.bare(line.replace("\t", " ").rpartition("\r")[2] or line))
    return shown if len(shown) <= _MOST_EVIDENCE else shown[: _MOST_EVIDENCE - 1] + "…"


def _tests(count: int) -> str:
    return units.plural(count, "test")


def _match(count: int) -> str:
    return "matches" if count == 1 else "match"


def as_json(explanation: Explanation) -> dict[str, Any]:
    """The same for programs; all names, always."""
    return {
        "failed": explanation.failed,
        "faults": [_fault_json(fault) for fault in explanation.faults],
        "unexplained": explanation.unexplained,
        "warnings": [_fault_json(fault) for fault in explanation.warnings],
        "troubles": explanation.troubles,
    }


def _fault_json(fault: Fault) -> dict[str, Any]:
    known = fault.signature
    told = {name: getattr(known, name) for name in ("id", "tool", "kind", "heals", "meaning", "cure", "source")}
    seen = {"times": fault.times, "log": fault.log, "line_number": fault.line_number, "line": evidence(fault.line)}
    return {**told, **seen, "tests": list(fault.tests)}
