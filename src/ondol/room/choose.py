"""Which directory the room goes into: candidates with what trying them showed, in order; one choice out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ondol.errors import RoomError
from ondol.light import Record


class Candidate(Record):
    path: str
    #: `--room-dir`, `TMPDIR` …: where the path came from.
    source: str


class Tried(Record):
    why_not: str
    network: bool


class Choice(Record):
    candidate: Candidate
    #: Those before it and why they were passed over.
    passed: tuple[tuple[Candidate, str], ...]


def candidates(configured: str, env: Mapping[str, str]) -> list[Candidate]:
    """In order of preference; each path once; relative paths are nobody's intention."""
    offers = [Candidate(configured, "--room-dir")]
    offers += [Candidate(env.get(name, ""), name) for name in ("SLURM_TMPDIR", "RUNNER_TEMP", "TMPDIR")]
    offers += [Candidate("/tmp", "default"), Candidate("/var/tmp", "default")]
    seen: set[str] = set()
    result = []
    for offer in offers:
        if offer.path and offer.path not in seen:
            seen.add(offer.path)
            result.append(offer)
    return result


def choose(offers: Iterable[Candidate], attempt: Callable[[str], Tried]) -> Choice:
    """The first local one that works; if none is local, the first that works at all."""
    passed: list[tuple[Candidate, str]] = []
    fallback: Candidate | None = None
    for offer in offers:
        if not offer.path.startswith("/"):
            passed.append((offer, "not an absolute path"))
            continue
        tried = attempt(offer.path)
        if tried.why_not:
            passed.append((offer, tried.why_not))
        elif tried.network:
            fallback = fallback or offer
            passed.append((offer, "on a network file system"))
        else:
            return Choice(offer, tuple(passed))
    if fallback:
        return Choice(fallback, tuple((offer, why) for offer, why in passed if offer != fallback))
    reasons = "; ".join(f"{offer.path}: {why}" for offer, why in passed)
    raise RoomError(
        "no directory on this machine can hold a room",
        because=reasons,
        hint="name a writable, executable directory with --room-dir",
    )
