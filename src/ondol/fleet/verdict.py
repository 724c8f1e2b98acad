"""What an item's attempts add up to: exactly one verdict, or one more attempt. Pure.

Retries are decided by *cause*, never by hope: a crash or a device fault may be the machine's, so it is tried again, in
a fresh process and elsewhere; an assertion is the item's own, so it is only *judged* once more, and only when the
worker had run other items before, because then their leftovers are a suspect too.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ondol.errors import UsageError


class Verdict(str, enum.Enum):
    """An item's one final outcome (R1)."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    CACHE_FAULT = "cache-fault"
    DEVICE_LOST = "device-lost"
    NOT_RUN = "not-run"

    @property
    def bad(self) -> bool:
        """The run failed because of this item."""
        return self._value_ in BAD

    @property
    def incomplete(self) -> bool:
        """Nobody knows whether the item is good."""
        return self._value_ in INCOMPLETE


#: As records have them, and asked for several times for each of thousands of items.
BAD = frozenset({"failed", "error", "timeout", "crashed", "cache-fault"})
INCOMPLETE = frozenset({"device-lost", "not-run"})


class Cause(str, enum.Enum):
    """Why an attempt did not end well; decides whether it is tried again."""

    NONE = ""
    FAILED = "failed"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    DEVICE = "device"
    CACHE = "cache"
    INTERRUPTED = "interrupted"


def parse_causes(text: str) -> frozenset[Cause]:
    known = {c.value: c for c in Cause if c not in {Cause.NONE, Cause.INTERRUPTED}}
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--retry-on: there is no cause {unknown[0]!r}", hint=", ".join(known))
    return frozenset(known[name] for name in names)


RETRIED_BY_DEFAULT = frozenset({Cause.CRASHED, Cause.DEVICE, Cause.CACHE})


class Attempt(NamedTuple):
    """One execution of an item, as far as judging needs it."""

    outcome: Verdict
    cause: Cause = Cause.NONE
    #: The worker had run other items before this one.
    warm: bool = False
    device: str = ""
    reason: str = ""

    @property
    def good(self) -> bool:
        return not (self.outcome.bad or self.outcome.incomplete)


class Policy(NamedTuple):
    """How much doubt a bad attempt gets."""

    retries: int = 1
    retry_on: frozenset[Cause] = RETRIED_BY_DEFAULT
    judge: bool = True
    #: Judging stops when this many failures were confirmed and none was overturned: the suite is simply red.
    judge_limit: int = 20
    #: A flaky item counts as failed.
    flaky_fails: bool = False


@dataclass
class JudgeRecord:
    """How judging went so far in this run."""

    confirmed: int = 0
    overturned: int = 0

    def spent(self, policy: Policy) -> bool:
        return self.overturned == 0 and self.confirmed >= policy.judge_limit


class Again(NamedTuple):
    """Try once more, in a fresh process, away from `avoid` where that is possible."""

    avoid: frozenset[str]


class Final(NamedTuple):
    """The verdict. `flaky` says that an earlier attempt went badly; `why` is for people."""

    verdict: Verdict
    flaky: bool = False
    why: str = ""


def judge(attempts: Sequence[Attempt], policy: Policy, record: JudgeRecord) -> Again | Final:
    """Decide after the last of `attempts`."""
    last = attempts[-1]
    if last.good:
        final = _good_end(attempts)
        if final.flaky and policy.flaky_fails:
            return Final(Verdict.FAILED, flaky=True, why=f"flaky: {final.why}")
        return final
    lost = sum(a.outcome is Verdict.DEVICE_LOST for a in attempts)
    if last.outcome is Verdict.DEVICE_LOST and last.cause is Cause.DEVICE and lost < 2:
        # Its device was taken from it. Once: an item that costs two devices is more likely the culprit than they.
        return Again(frozenset(a.device for a in attempts if a.device))
    if last.cause is Cause.INTERRUPTED or last.outcome.incomplete:
        return Final(last.outcome, why=last.reason)
    again = _again(attempts, policy, record)
    return again if again is not None else Final(last.outcome, why=last.reason)


def _good_end(attempts: Sequence[Attempt]) -> Final:
    last = attempts[-1]
    bad = [a for a in attempts[:-1] if not a.good]
    if not bad:
        return Final(last.outcome, why=last.reason)
    first = bad[0]
    if first.cause is Cause.FAILED and first.warm:
        why = "state-leak suspect: failed in a warm worker, passed in a fresh one"
    else:
        number = list(attempts).index(first) + 1
        why = f"{first.outcome.value} on attempt {number}, {last.outcome.value} on attempt {len(attempts)}"
    return Final(last.outcome, flaky=True, why=why)


def _own(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Without what ended because its device was set aside: that says nothing about the item, and costs it nothing."""
    return [a for a in attempts if a.outcome is not Verdict.DEVICE_LOST]


def _again(attempts: Sequence[Attempt], policy: Policy, record: JudgeRecord) -> Again | None:
    last = attempts[-1]
    spent = len(_own(attempts)) - 1
    if last.cause in policy.retry_on and spent < policy.retries:
        return Again(frozenset(a.device for a in attempts if a.device))
    first_failure = last.cause is Cause.FAILED and spent == 0
    if first_failure and last.warm and policy.judge and not record.spent(policy):
        return Again(frozenset())
    return None


def note_judgement(attempts: Sequence[Attempt], final: Final, record: JudgeRecord) -> None:
    """Remember how a judged failure ended, so that a red suite is not run twice over."""
    own = _own(attempts)
    if len(own) < 2 or own[0].cause is not Cause.FAILED:
        return
    if final.flaky:
        record.overturned += 1
    else:
        record.confirmed += 1
