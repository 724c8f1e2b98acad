"""The life of a guarded command: lock its cache, run it, and if it fails because of the cache, heal that and retry.

One rule above all others, as in `run_command`: nothing on our side keeps the command from running, or changes how it
ends. Every step but the command itself may fail; then it runs unlocked, or its failure is final.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ondol import exitcodes
from ondol.config import Settings
from ondol.errors import UsageError, in_ourselves
from ondol.explain import match, signature
from ondol.guard import healing, lock_parts
from ondol.guard.lock import CacheLock
from ondol.host import command, identity, standard_input
from ondol.host.command import asked
from ondol.host.relay import Relay

#: A wait that nobody notices is not worth a word.
_WORTH_A_WORD = 1.0
#: uv's words for a cache on a file system without locks. We can do without; uv itself cannot.
_NO_LOCKS = "uv-lock-not-supported"
#: How much of the output's end is looked at after a failure.
_TAIL = 256 << 10
#: Seconds for uv or pip to say where its cache is; and how they are told to use none.
_ANSWER, _NO_CACHE = 20.0, ("--no-cache", "--no-cache-dir")
Tell = Callable[[str], None]


class GuardedAttempt(NamedTuple):
    status: int
    #: `cache`, `network` …, as `judge` said; empty if nobody asked.
    verdict: str = ""
    #: The signature's id.
    fault: str = ""


class Guard:
    """One guarded command, and what has become of it. `tell` says something to the user at once."""

    def __init__(
        self,
        argv: Sequence[str],
        cache: str,
        settings: Settings,
        env: Mapping[str, str],
        tell: Tell,
        progress: healing.Progress,
        *,
        make: bool,
    ) -> None:
        """`make`: the cache, if it is not there, as the tool that named it would."""
        self._argv = argv
        self._settings = settings
        self._env = dict(env)
        self._say = tell
        self._progress = progress
        self.lock = CacheLock(cache, argv, self._tell, env, wait=settings.guard_wait, make=make)
        self.status = exitcodes.INTERNAL  # until the command has ended
        self.attempts: list[GuardedAttempt] = []
        #: Where the command's cache was for its last attempt, if not in `cache`.
        self.relocated = ""
        self.healed: list[healing.HealingReport] = []
        self.not_started = ""
        self.warnings: list[str] = []

    def happened(self) -> bool:
        """Whether there is anything to tell of."""
        return self.lock.waited >= _WORTH_A_WORD or len(self.attempts) > 1 or any(one.taken for one in self.healed)

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "ondol-guard/1",
            "command": self._argv,
            "status": self.status,
            "cache": self.lock.cache,
            "lock": {"standing": self.lock.standing, "waited": round(self.lock.waited, 3), "passed": self.lock.passed},
            "attempts": [attempt._asdict() for attempt in self.attempts],
            "healed": [one.as_dict() for one in self.healed],
            "relocated": self.relocated,
            "warnings": self.warnings,
        }

    def run(self) -> int:
        try:
            self._safely("going on without the lock", self._acquire)
            if self._settings.guard_verify:
                self._safely("the cache was not verified", self._verify)
            if self._settings.guard_heal != "off":
                # Now: the command may replace the very venv that we live in (`uv sync`).
                self._safely("nothing will be healed", signature.load)
            attempts = partial(run_until_final, self._settings.retries, self._run_command, self._mended_after)
            self._safely("the command is not run again", partial(attempts, self._tell, self._safely))
            return self.status
        finally:
            self._safely("the lock is given back when this process ends", self.lock.release)

    def _acquire(self) -> None:
        self.lock.acquire(shared=self._settings.guard_shared)
        self._env |= self.lock.env()

    def _verify(self) -> None:
        family = healing.family_of(self.lock.cache)
        if family:
            self._heal(family)

    def _run_command(self) -> bytes:
        def on_end(ended: command.CommandEnded) -> None:
            self.status = ended.status
            self.not_started = ended.not_started

        if self._settings.guard_heal == "off":
            command.run(self._argv, self._env, on_end)
            tail = b""
        else:
            tail = run_captured(self._argv, self._env, on_end, self._warn)
        self.attempts.append(GuardedAttempt(self.status))
        return tail

    def _mended_after(self, tail: bytes) -> bool:
        """Judge a failure by the end of its output; if it was the cache, heal that. Whether to try once more."""
        if self._settings.guard_heal == "off" or self.not_started or not may_be_the_cache(self.status):
            return False
        verdict = match.judge(tail.decode("utf-8", "replace"))
        fault = verdict.signature.id if verdict.signature else ""
        self.attempts[-1] = self.attempts[-1]._replace(verdict=verdict.kind, fault=fault)
        if fault == _NO_LOCKS and not self.relocated:
            return self._relocate()
        if verdict.kind != "cache" or verdict.signature is None:
            return False
        self._tell(f"{identity.hostname()}: a fault of the cache {self.lock.cache} ({fault}): {verdict.line.strip()}")
        healed = self._heal(verdict.signature.heals)
        if healed.mended:
            return True
        beside_others = self._settings.guard_shared or not self.lock.standing
        if beside_others and not healed.why_not and not healed.taken:
            return True  # somebody else may have mended the cache while our command ran
        why = healed.why_not or "every entry in it is whole; --heal whole would set all of them aside"
        self._tell(f"not healed: {'the bad entries cannot be moved' if healed.taken else why}")
        return False

    def _relocate(self) -> bool:
        """Give uv a cache on this node for this command. It stays: what was installed may be links into it."""
        if any(word.startswith("--cache-dir") for word in self._argv):
            self._tell("uv cannot lock its cache, and --cache-dir keeps it there: leave that out, or name a local disk")
            return False
        self.relocated = lock_parts.private_directory("uv-cache")
        self._env["UV_CACHE_DIR"] = self.relocated
        where = f"UV_CACHE_DIR={self.relocated} for this command"
        self._warn(f"uv cannot lock {self.lock.cache}, its file system has no locks: {where}")
        return True

    def _heal(self, family: str) -> healing.HealingReport:
        try:
            healed = healing.heal(family, self.lock, self._progress, whole=self._settings.guard_heal == "whole")
        finally:
            self._progress("", 1, 1)  # nothing of ours may stand on the terminal when the command starts
        self.healed.append(healed)
        for one in healed.taken:
            outcome = "set aside" if one.kept else "not set aside"
            trouble = f" (it cannot be moved: {one.trouble})" if one.trouble else ""
            self._tell(f"{outcome}: {one.path}: {one.why}{trouble}")
        if healed.folder:
            self._tell(f"kept in {healed.folder} on {healed.host}; delete it when you like")
        return healed

    def _safely(self, otherwise: str, step: Callable[[], Any]) -> Any:
        """A bug of ours costs protection, never the command."""
        try:
            return step()
        except Exception as error:
            self._warn(f"{otherwise}: {in_ourselves(error)}")
            return None

    def _warn(self, text: str) -> None:
        self._tell(f"warning: {text}")

    def _tell(self, text: str) -> None:
        if text.startswith("warning: "):
            self.warnings.append(text.removeprefix("warning: "))
        self._say(text)


def may_be_the_cache(status: int) -> bool:
    """A command that succeeded, or was ended by a signal, says nothing about its cache."""
    return 0 < status < exitcodes.from_signal(0)


def run_until_final(
    retries: int,
    run: Callable[[], bytes],
    mended: Callable[[bytes], bool],
    tell: Tell,
    safely: Callable[[str, Callable[[], Any]], Any],
) -> None:
    """Run it until it ends otherwise than by its cache's fault, or the retries are used up.

    The cache is mended after the last failure too: others come later, and what it broke on is not published.
    """
    for left in range(retries, -1, -1):
        before = safely("not tried once more", standard_input.look)
        tail = run()
        if not safely("not healed", partial(mended, tail)) or not left or before is None:
            return
        if not standard_input.rewind(before):
            tell("the cache is healed; not tried once more, because the standard input has been read")
            return
        tell("one more attempt")


def run_captured(
    argv: Sequence[str],
    env: Mapping[str, str],
    on_end: Callable[[command.CommandEnded], None],
    warn: Tell,
    *,
    through: Sequence[str] = (),
) -> bytes:
    """Run a command whose output passes through us; returns the end of it, empty if that could not be watched."""
    try:
        relay = Relay(_TAIL)
    except OSError as error:  # no more processes, descriptors or terminals for us; the command may need fewer
        warn(f"the output cannot be watched, so nothing is healed: {error.strerror}")
        command.run(argv, env, on_end, through=through)
        return b""
    command.run(argv, env, on_end, through=through, streams=relay.streams)
    return relay.finish()


def cache_of(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """Which cache this command uses; the tool itself is asked, because it knows its own rules.

    Raises `UsageError` if that cannot be known, or it uses none.
    """
    for healer in healing.HEALERS.values():
        question = healer.asks(argv)
        if not question:
            continue
        if any(word in _NO_CACHE for word in argv):
            raise UsageError(f"{argv[0]} is told to use no cache, so there is nothing to guard", hint=" ".join(argv))
        return _named(argv) or _asked(question, env) or healer.usual_place(env)
    raise UsageError(
        f"which cache does {argv[0]} use?",
        because="only uv and pip can be asked",
        hint="ondol guard --cache DIR -- COMMAND …",
    )


def _named(argv: Sequence[str]) -> str:
    """`--cache-dir DIR` or `--cache-dir=DIR`: uv and pip spell it alike."""
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--cache-dir":
            return os.path.abspath(following) if following else ""
        if word.startswith("--cache-dir="):
            return os.path.abspath(word.partition("=")[2])
    return ""


def _asked(question: list[str], env: Mapping[str, str]) -> str:
    last = asked(question, _ANSWER, env).rpartition("\n")[2]
    return last if os.path.isabs(last) else ""
