"""A run as Markdown, short enough for a step summary."""

from __future__ import annotations

from ondol.report.run_record import ItemRecord, RunRecord

SHOWN = 50
_NODES = {"node-lost": "was lost", "node-notice": "was taken away", "node-out": "was left out"}
_BAD = ("failed", "error", "crashed", "timeout", "device-lost")


def render(record: RunRecord) -> str:
    counts = record.counts()
    total = ", ".join(f"{number} {name}" for name, number in counts.items()) or "no items"
    lines = [f"### ondol test: {total}", ""]
    if not record.complete:
        lines += ["**The run was cut off**; this is what its journal knew.", ""]
    for node in record.nodes:
        if node["e"] in _NODES:
            lines.append(f"- node `{node['node']}` {_NODES[node['e']]}: {_one_line(node['why'])}")
    for quarantine in record.quarantines:
        lines.append(f"- device `{quarantine['device']}` was set aside: {_one_line(quarantine['why'])}")
    for fatal in record.fatal:
        lines.append(f"- `{fatal['file']}` ended the process that collected it: {_one_line(fatal['why'])}")
    bad = [item for item in record.items if item.verdict in _BAD]
    if bad:
        lines += ["", "| item | verdict | attempts | device | why |", "|---|---|---|---|---|"]
        lines += [_row(item) for item in bad[:SHOWN]]
        lines += [f"| and {len(bad) - SHOWN} more | | | | |"] if len(bad) > SHOWN else []
    flaky = [item for item in record.items if item.flaky]
    if flaky:
        lines += ["", "Flaky:", ""]
        lines += [f"- `{item.nodeid}`: {_one_line(item.why)}" for item in flaky[:SHOWN]]
    return "\n".join(lines) + "\n"


def _row(item: ItemRecord) -> str:
    device = item.attempts[-1].device if item.attempts else ""
    return f"| `{_one_line(item.nodeid)}` | {item.verdict} | {len(item.attempts)} | {device} | {_one_line(item.why)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:200]
