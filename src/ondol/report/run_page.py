"""`--html FILE`: a run as one page that needs nothing else: no network, no other file.

Everything that a test said is data here and never markup: it travels compressed, as letters and digits, and the page's
script puts it on the screen as text. The page allows itself exactly its own script and its own style, by their hashes.
"""

import base64
import json
import shlex
import zlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from ondol import __version__
from ondol.fleet import past
from ondol.fleet.messages import NodeUp, Probed
from ondol.fleet.past import PastRun
from ondol.fleet.record import AttemptRecord, RunRecord
from ondol.report import compare, run_causes, why_slow
from ondol.report.page_policy import policy
from ondol.report.timeline import Bar, DeviceLane, Timeline

#: A longer text keeps its beginning and its end.
HEAD, TAIL = 6000, 14000
#: Bytes of compressed texts, and characters of them before that. Past either, the page says where the rest is.
MOST_PACKED, MOST_TEXT = 850_000, 24_000_000
LEFT_OUT = -1
#: Options of the run that the command for one item repeats.
_REPEATED = ("devices", "engine", "launch", "nodes", "slurm", "srun", "agent", "node-dir", "timeout")


def render(record: RunRecord, before: PastRun | None = None) -> str:
    texts = Texts()
    told = _data(record, texts)
    if before:
        told["against"] = {"began": before.began, **compare.compare(before, past.of_record(record))._asdict()}
    data = base64.b64encode(zlib.compress(json.dumps(told, separators=(",", ":"), default=str).encode(), 9)).decode()
    folder = files("ondol.report").joinpath("html")
    page, style, script = (folder.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    allowed = policy(style, script)
    parts = {"@POLICY@": allowed, "@STYLE@": style, "@SCRIPT@": script, "@DATA@": data, "@TEXTS@": texts.packed()}
    for name, part in parts.items():
        page = page.replace(name, part, 1)
    return page


class Texts:
    """What tests said, each text once, as much as fits. Number 0 is the empty one."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {"": 0}
        self._deflate = zlib.compressobj(9)
        self._packed = bytearray(self._deflate.compress(b'[""'))
        self._length = 0

    def number(self, text: str) -> int:
        if len(text) > HEAD + TAIL:
            gone = len(text) - HEAD - TAIL
            text = f"{text[:HEAD]}\n[… {gone} characters are left out here; the journal has them …]\n{text[-TAIL:]}"
        if text in self._known:
            return self._known[text]
        if len(self._packed) > MOST_PACKED or self._length > MOST_TEXT:
            return LEFT_OUT
        self._length += len(text)
        self._packed += self._deflate.compress(b"," + json.dumps(text).encode())
        if len(text) > 1000:  # so that the size is known when the next one comes
            self._packed += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return self._known.setdefault(text, len(self._known))

    def packed(self) -> str:
        return base64.b64encode(bytes(self._packed + self._deflate.compress(b"]") + self._deflate.flush())).decode()


def _data(record: RunRecord, texts: Texts) -> dict[str, Any]:
    found = Timeline(record)
    return {
        "began": record.first,
        "seconds": round(found.seconds, 3),
        "collected": round(found.collected, 3),
        "complete": record.complete,
        "stopped": record.stopped.reason if record.stopped else "",
        "status": record.status,
        "counts": record.counts(),
        "run": {**record.run._asdict(), "ondol": __version__},
        "again": _again(record),
        "reasons": [[one.text, one.item] for one in why_slow.reasons(found, record)],
        "causes": [vars(group) for group in run_causes.groups(record)],
        "fatal": [list(one) for one in record.fatal],
        "notes": record.notes[:200],
        "ids": [item.nodeid for item in record.items],
        "verdicts": [item.verdict for item in record.items],
        "muted": {number: item.known for number, item in enumerate(record.items) if item.muted},
        "flaky": [number for number, item in enumerate(record.items) if item.flaky],
        "why": [texts.number(item.why) for item in record.items],
        "lanes": [_lane(lane) for lane in found.lanes],
        "attempts": [_attempt(n, bar, texts) for n, lane in enumerate(found.lanes) for bar in lane.bars],
        "marks": [_short(mark) for mark in found.marks],
        "devices": _devices(record),
        "aside": {one.device: [one.why, one.items] for one in record.quarantines},
        "probes": [[*event] for _, event in record.story if isinstance(event, Probed)],
        "rooms": [_room(room.node, room.room) for room in record.rooms],
    }


def _again(record: RunRecord) -> str:
    """The beginning of the command that runs one item; the page adds its name."""
    ours = [word.removeprefix("--ondol-") for word in record.run.arguments if word.startswith("--ondol-")]
    repeated = [f"--{word}" for word in ours if word.split("=")[0] in _REPEATED and word[-1] != "="]
    return shlex.join(["ondol", "test", *repeated])


def _short(values: Sequence[Any]) -> list[Any]:
    return [round(value, 4) if isinstance(value, float) else value for value in values]


def _lane(lane: DeviceLane) -> dict[str, Any]:
    told = {"lives": [*map(_short, lane.generations)], "prepared": [*map(_short, lane.prepared)]}
    return {"slot": lane.slot, "device": lane.device, "node": lane.node, **told}


def _attempt(lane: int, bar: Bar, texts: Texts) -> list[Any]:
    """A row; what most attempts do not have is left away at its end."""
    attempt, told = bar.attempt, _told(bar.attempt, texts)
    phases = [_short([phase.name[0], phase.end - phase.begin]) for phase in bar.phases]
    row = [bar.item, attempt.number, lane, bar.begin, bar.end, attempt.outcome, attempt.warm, attempt.worker, phases]
    return _short([*row, told] if told else row)


def _told(attempt: AttemptRecord, texts: Texts) -> dict[str, Any]:
    found: dict[str, Any] = {
        "reason": texts.number(attempt.reason),
        "text": texts.number(attempt.text),
        "stacks": texts.number(attempt.dump),
        "output": {name: texts.number(text) for name, text in attempt.output.items() if text},
        "dirt": [list(pair) for pair in attempt.dirt],
        "cut": attempt.phase,
    }
    return {name: value for name, value in found.items() if value}


def _devices(record: RunRecord) -> dict[str, str]:
    """Name → kind."""
    told = [*record.run.devices, *(d for node in record.nodes if isinstance(node, NodeUp) for d in node.devices)]
    kinds = {slot.device: "" for slot in record.slots.values() if slot.device}
    return kinds | {str(d["name"]): str(d.get("kind", "")) for d in told if isinstance(d, dict)}


#: Of a tool; there may be thousands of each.
_NOT_SHOWN = {"packs", "new_titles", "bad_reasons", "managed"}


def _room(node: str, room: dict[str, Any]) -> dict[str, Any]:
    told = room.get("tools", {}).values()
    tools = [{key: value for key, value in tool.items() if value and key not in _NOT_SHOWN} for tool in told]
    return {**room, "node": node, "env": {}, "tools": [tool for tool in tools if set(tool) - {"name", "used"}]}
