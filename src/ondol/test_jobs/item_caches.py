"""What the cache wing tells the run wing about a failed item: whether a cache is at fault, and how it was mended."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from ondol import units
from ondol.errors import OndolError
from ondol.host import bounded

#: What a failure shows with these kinds of signatures is the cache's or its place's doing, never the item's.
_CACHES_DOING = {"cache", "place"}
#: Exceptions by which a test speaks for itself. Their text may quote anything: also a cache's fault that some other
#: program had, or that the test is about.
_THE_TESTS_OWN = ("AssertionError", "assert ", "Failed: ")
#: A cache that takes longer to read than this is not waited for; the item is tried again all the same.
_LONGEST_LOOK = 60.0


# What knows the faults and the caches is imported for the first failure: most runs of a suite have none.


class ItemCaches:
    """Tells a cache's fault from a test's, and mends it before the item is tried again."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def fault(self, text: str) -> str:
        from ondol.explain import match

        verdict = match.judge(evidence(text))
        if verdict.signature is None or verdict.kind not in _CACHES_DOING:
            return ""
        return f"cache fault: {verdict.signature.meaning} ({verdict.line.strip()[:200]})"

    def heal(self, text: str) -> str:
        from ondol.explain import match
        from ondol.guard.healing import HEALERS

        verdict = match.judge(evidence(text))
        family = verdict.signature.heals if verdict.signature else ""
        if family not in HEALERS:
            return ""
        cache = HEALERS[family].usual_place(self._env)
        try:
            # In a helper: the cache may lie on a file system that hangs, and a run must not.
            names = bounded.call(partial(_heal, family, cache), _LONGEST_LOOK, lambda *_: None)
        except OndolError as error:
            return f"the {family} cache {cache} could not be healed: {error.line()}"
        if not names:
            return ""
        listed = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
        return f"{units.entries(len(names))} of the {family} cache {cache} set aside: {listed}"


def _heal(family: str, cache: str, _report: bounded.Report) -> Any:
    from ondol.guard import healing

    report = healing.heal(family, healing.Unlocked(cache), lambda *_: None)
    return [one.path for one in report.taken if one.kept]


def evidence(text: str) -> str:
    """The part of a failure's text that says what was raised, without the source code that pytest prints with it.

    Empty if the first or last exception is one by which the test itself says that something is wrong.
    """
    raised = [line for line in text.splitlines() if line and not line.startswith((" ", ">"))]
    spoken = [line.removeprefix("E").strip() for line in raised if line.startswith("E ")]
    if any(line.startswith(_THE_TESTS_OWN) for line in spoken[:1] + spoken[-1:]):
        return ""
    return "\n".join(raised)
