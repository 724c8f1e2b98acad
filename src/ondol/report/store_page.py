"""`ondol store stats`: what a store holds and what jobs had of it, as one page without a script, and in the text format
that node_exporter's textfile collector reads. Pure.

Names in a store are chosen by others: every one of them is escaped, and the page allows itself nothing but its style.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ondol import units
from ondol.report.page_policy import policy

_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24;
  --line: #d5d9df; --bar: #2f9e60; --rest: #d97706; --soft: #545c66; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e7eaee; --line: #343a43; --bar: #3fae72; --rest: #f0a040; --soft: #a3acb8; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; color: var(--soft); }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); } .n { text-align: right; }
svg { width: 100%; height: 14rem; } svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.hits { fill: var(--bar); } .misses { fill: var(--rest); } p.soft { color: var(--soft); }
"""
_HEIGHT, _FOOT, _STEP, _MOST_DAYS = 190, 24, 26, 30


def render(facts: Mapping[str, Any]) -> str:
    title = f"The store {facts['store']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(units.entries(facts['entries']))}, {units.size(facts['bytes'])}; "
        f"{facts['used_last_week']} of them used in the last week. "
        f"{units.size(facts['free_bytes'])} free on {escape(facts['file_system'])}.</p>",
        *_days(facts["jobs"]),
        "<h2>By tool</h2>",
        _table(
            "What the store holds",
            ("tool", "entries", "packed"),
            ((tool["tool"], str(tool["entries"]), units.size(tool["bytes"])) for tool in facts["tools"]),
        ),
        "<h2>By lane</h2>",
        _table(
            "A lane is one user's part of the store",
            ("lane", "used by you", "entries", "packed", "set aside", "half-written"),
            map(lane_cells, facts["lanes"]),
            words_first=2,
        ),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(_STYLE)}">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><main>\n" + "\n".join(parts) + "\n</main></body></html>\n"
    )


def lane_cells(lane: Mapping[str, Any]) -> tuple[str, ...]:
    used = "yes" if lane["trusted"] else "no, passed over"
    return (
        lane["name"],
        used,
        str(lane["entries"]),
        units.size(lane["bytes"]),
        str(lane["quarantined"]),
        str(lane["half_written"]),
    )


def _days(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Bars of a day: what was used from the store, and above it what had to be compiled."""
    hits, misses, saved = Counter[str](), Counter[str](), Counter[str]()
    for row in jobs:
        hits[row["day"]] += row["hits"]
        misses[row["day"]] += row["misses"]
        saved[row["day"]] += row["seconds_saved"]
    days = sorted(hits)[-_MOST_DAYS:]
    if not days:
        return ["<h2>By day</h2>", '<p class="soft">No job has reported anything yet.</p>']
    most = max(hits[day] + misses[day] for day in days) or 1
    rows = [
        (day, str(hits[day]), str(misses[day]), _rate(hits[day], misses[day]), f"{saved[day]:.1f} s") for day in days
    ]
    return [
        "<h2>By day</h2>",
        f'<svg viewBox="0 0 {max(len(days), 12) * _STEP} {_HEIGHT + _FOOT}" preserveAspectRatio="xMinYMax meet" '
        'role="img" aria-label="Hits and misses by day; the table below has the numbers">',
        *(_bar(place, day, hits[day], misses[day], most) for place, day in enumerate(days)),
        "</svg>",
        _table(
            "Green was used from the store, orange had to be compiled",
            ("day", "hits", "misses", "rate", "saved"),
            rows[::-1],
        ),
    ]


def _bar(place: int, day: str, hits: int, misses: int, most: int) -> str:
    x, low, high = place * _STEP + 3, _HEIGHT * hits / most, _HEIGHT * misses / most
    return (
        f'<rect class="hits" x="{x}" y="{_HEIGHT - low:.1f}" width="20" height="{low:.1f}"/>'
        f'<rect class="misses" x="{x}" y="{_HEIGHT - low - high:.1f}" width="20" height="{high:.1f}"/>'
        f'<text x="{x}" y="{_HEIGHT + 16}">{escape(day[8:])}</text>'
    )


def _rate(hits: int, misses: int) -> str:
    return f"{100 * hits / (hits + misses):.0f} %" if hits + misses else "-"


def _table(caption: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]], words_first: int = 1) -> str:
    def row(cells: Iterable[str], kind: str) -> str:
        right = " class=n"
        return "".join(
            f"<{kind}{right if n >= words_first else ''}>{escape(cell)}</{kind}>" for n, cell in enumerate(cells)
        )

    head, body = row(header, "th"), "\n".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"


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


def metrics(facts: Mapping[str, Any]) -> str:
    """For Prometheus. All are gauges: a day's numbers grow, and go when the day is a month old."""
    lines: list[str] = []
    for name, text in (_STORE | _JOBS).items():
        lines += [f"# HELP ondol_store_{name} {text}", f"# TYPE ondol_store_{name} gauge"]
        for row in facts["jobs"] if name in _JOBS else [facts]:
            labels = {"store": facts["store"]} | {label: row[label] for label in ("day", "tool") if name in _JOBS}
            escaped = {k: v.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for k, v in labels.items()}
            told = ",".join(f'{label}="{said}"' for label, said in escaped.items())
            lines.append(f"ondol_store_{name}{{{told}}} {row[name]}")
    return "\n".join(lines) + "\n"
