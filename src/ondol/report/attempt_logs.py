"""`--log-dir`: a file for every attempt, with all that is known of it."""

import re
from collections.abc import Iterable
from pathlib import Path

from ondol.fleet.record import STREAMS, AttemptRecord, ItemRecord

_LONGEST = 150


class AttemptLogs:
    """The files of one run; without a folder, none."""

    def __init__(self, folder: str, nodeids: Iterable[str]) -> None:
        self._folder = Path(folder) if folder else None
        self._names = _names(nodeids) if folder else []

    def write(self, number: int, item: ItemRecord) -> str:
        """What went wrong, once: logs never fail a run."""
        if self._folder is None:
            return ""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for attempt in item.attempts:
                path = self._folder / f"{self._names[number]}.{attempt.number}.log"
                path.write_text(_text(item.nodeid, attempt), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            self._folder = None
            return f"--log-dir: no more logs are written: {error}"
        return ""


def _names(nodeids: Iterable[str]) -> list[str]:
    """File names that people recognise; of ids that would get the same one, the later ones are numbered."""
    made: list[str] = []
    seen: dict[str, int] = {}
    for nodeid in nodeids:
        name = re.sub(r"[^\w.\[\]=+,-]", "-", nodeid.replace("::", "--"))[:_LONGEST]
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return made


def _text(nodeid: str, attempt: AttemptRecord) -> str:
    place = f"on {attempt.device or 'no device'}, worker {attempt.worker}, {'warm' if attempt.warm else 'fresh'}"
    lines = [nodeid, f"attempt {attempt.number} {place}: {attempt.outcome}", attempt.reason]
    # Every report repeats what the item had printed before.
    sections = {name: text for report in attempt.reports for name, text in report.get("sections", [])}
    if attempt.phase:
        sections |= {f"Captured {name} until then": attempt.output[name] for name in STREAMS if name in attempt.output}
    sections |= {"Failure": attempt.text, "Stacks": attempt.dump}
    for name, text in sections.items():
        lines += [f"----- {name} -----", text.rstrip()] if text else []
    return "\n".join(filter(None, lines)) + "\n"
