"""What a store's jobs had of it, in the text format that node_exporter's textfile collector reads. Pure."""

from collections.abc import Mapping
from typing import Any

_STORE = {
    "entries": "Entries in the store.",
    "bytes": "What the entries take, packed.",
    "free_bytes": "What the store's file system has left.",
}
_JOBS = {
    "hits": "Entries that jobs of this day took from the store and used.",
    "misses": "Entries that jobs of this day had to compile.",
    "bytes_used": "Size of the entries that were used, unpacked.",
    "seconds_saved": "What compiling the used entries had cost, as far as that is known.",
}


def render(facts: Mapping[str, Any]) -> str:
    """All are gauges: a day's numbers grow, and go when the day is a month old."""
    lines: list[str] = []
    for name, text in (_STORE | _JOBS).items():
        lines += [f"# HELP ondol_store_{name} {text}", f"# TYPE ondol_store_{name} gauge"]
        for row in facts["jobs"] if name in _JOBS else [facts]:
            labels = {"store": facts["store"]} | {label: row[label] for label in ("day", "tool") if name in _JOBS}
            told = ",".join(f'{label}="{_escaped(said)}"' for label, said in labels.items())
            lines.append(f"ondol_store_{name}{{{told}}} {row[name]}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
