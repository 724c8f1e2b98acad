"""Which directory the room goes into: candidates with what trying them showed, in order; one choice out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ondol.errors import RoomError


class Candidate(NamedTuple):
    path: str
    #: `--room-dir`, `TMPDIR` …: where the path came from.
    source: str


class RoomChoice(NamedTuple):
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


def choose(offers: Iterable[Candidate], is_network: Callable[[str], bool], why_not: Callable[[str], str]) -> RoomChoice:
    """The first local one that works; if none is local, the first that works at all.

    `why_not` tries a directory for real; it is not asked about one on a network before all local ones have failed,
    because a dead server never answers.
    """
    passed: list[tuple[Candidate, str]] = []
    distant: list[Candidate] = []
    for offer in offers:
        if not offer.path.startswith("/"):
            passed.append((offer, "not an absolute path"))
        elif is_network(offer.path):
            distant.append(offer)
        elif reason := why_not(offer.path):
            passed.append((offer, reason))
        else:
            return RoomChoice(offer, (*passed, *((other, "on a network file system") for other in distant)))
    for offer in distant:
        if not (reason := why_not(offer.path)):
            return RoomChoice(offer, tuple(passed))
        passed.append((offer, reason))
    raise RoomError(
        "no directory on this machine can hold a room",
        because="; ".join(f"{offer.path}: {why}" for offer, why in passed),
        hint="name a writable, executable directory with --room-dir",
    )
