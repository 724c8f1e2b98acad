"""Many producers of the same keys, each with bytes of its own, and readers that look all the while."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from faults import crash_points
from faults.crash_points import Point
from faults.operations import packs
from handmade import key_of, trust_everybody
from ondol.errors import PackError
from ondol.store import pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Address, Entry, File

KEYS = 6
_NAMES = ("a.cubin", "b.json", "sub/c.ptx")


def made_by(producer: int, number: int) -> Entry:
    """An entry whose every file says who made it."""
    files = tuple(File(name, False, b"%s by producer %d\n" % (name.encode(), producer) * 20) for name in _NAMES)
    return Entry(Address("main", "triton", "any", key_of(number)), files, "k", 1.0, {})


def producer_of(entry: Entry) -> int | None:
    """Who made all of this entry; None if it is nobody's or several producers'."""
    makers = {int(bytes(file.data).split()[3]) for file in entry.files}
    whole = len(makers) == 1 and entry.files == made_by(makers.copy().pop(), 0).files
    return makers.pop() if whole else None


def _produce(path: str, producer: int, dice: random.Random) -> None:
    store = DirectoryStore(path, trust_everybody)
    numbers = list(range(KEYS))
    dice.shuffle(numbers)
    for number in numbers:
        store.publish(packs(made_by(producer, number)))
    store.close()


def _watch(path: str, seen: dict[str, int], stop: Callable[[], bool]) -> tuple[int, list[str]]:
    """Read everything again and again: (reads, violations). `seen`: who was first, for each key."""
    reads, found = 0, []
    while True:
        last_round = stop()
        store = DirectoryStore(path, trust_everybody)
        for stored in store.index("triton", ["main"]):
            try:
                entry = pack.decode(store.fetch(stored), stored.address)
            except PackError as error:
                found.append(f"a bad pack is visible: {error.line()}")
                continue
            except OSError:
                continue
            reads += 1
            producer = producer_of(entry)
            place = f"{stored.place}/{stored.address.key}"
            if producer is None:
                found.append(f"{place} is a mixture")
            elif seen.setdefault(place, producer) != producer:
                found.append(f"{place} was made by {seen[place]} and is now by {producer}")
        store.close()
        if last_round:
            return reads, found


def _start(work: Callable[[], object]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    return pid, reading


def _finish(pid: int, pipe: int) -> Any:
    with os.fdopen(pipe, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    return json.loads(said) if said else None


def crowd_violations(path: Path, producers: int = 200, at_once: int = 4, readers: int = 2, seed: int = 5) -> list[str]:
    """Producers in waves, most of them killed at a random call; readers from the first wave to the last."""
    flag = path.parent / "over"

    def watch() -> object:
        seen: dict[str, int] = {}
        reads, found = _watch(str(path), seen, flag.exists)
        return [reads, found, seen]

    def produce(producer: int) -> object:
        dice = random.Random(seed * 1000 + producer)
        point = Point(dice.choice(("before", "after")), dice.randrange(1, 140))
        return crash_points.run(lambda: _produce(str(path), producer, dice), point).how

    watching = [_start(watch) for _ in range(readers)]
    ends: list[object] = []
    for first in range(0, producers, at_once):
        wave = [_start(partial(produce, producer)) for producer in range(first, first + at_once)]
        ends += [_finish(*child) for child in wave]
    flag.touch()
    answers = [_finish(*child) for child in watching]
    found = [text for _, texts, _ in answers for text in texts]
    firsts: dict[str, int] = {}
    for _, _, seen in answers:
        for place, producer in seen.items():
            if firsts.setdefault(place, producer) != producer:
                found.append(f"two readers saw two first producers of {place}")
    if crash_points.KILLED not in ends or crash_points.FINISHED not in ends:
        found.append(f"nothing was proved: {ends}")
    if not all(reads for reads, _, _ in answers) or len(firsts) < KEYS:
        found.append("nothing was proved: the readers saw too little")
    return found


def replacement_violations(path: Path) -> list[str]:
    """Without any race: a second producer of a key that is taken changes nothing that a reader sees."""
    store = DirectoryStore(str(path), trust_everybody)
    found = []
    for producer in (1, 2):
        outcome = store.publish(packs(made_by(producer, 0)))[0]
        if outcome.new != (producer == 1):
            found.append(f"producer {producer} was told new={outcome.new}")
        entries = [pack.decode(store.fetch(stored), stored.address) for stored in store.everything()]
        if [producer_of(entry) for entry in entries] != [1]:
            found.append(f"after producer {producer} a reader sees {[producer_of(entry) for entry in entries]}")
    store.close()
    return found
