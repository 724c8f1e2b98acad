"""A run as Markdown, short enough for a step summary; and on GitHub Actions one annotation for each bad item."""

from ondol.fleet.messages import NodeLost, NodeNotice, NodeOut, NodeUp
from ondol.fleet.record import ItemRecord, RunRecord
from ondol.fleet.verdict import Verdict
from ondol.foreign_text import code_span, markdown

SHOWN = 50
#: GitHub shows ten annotations of each kind per step.
ANNOTATIONS = 10
_NODES: dict[type, str] = {NodeLost: "was lost", NodeNotice: "was taken away", NodeOut: "was left out"}


def render(record: RunRecord) -> str:
    counts = record.counts()
    total = ", ".join(f"{number} {name}" for name, number in counts.items()) or "no items"
    lines = [f"### ondol test: {total}", ""]
    if not record.complete:
        lines += ["**The run was cut off**; this is what its journal knew.", ""]
    for node in record.nodes:
        if not isinstance(node, NodeUp):
            lines.append(f"- node {code_span(node.node)} {_NODES[type(node)]}: {_one_line(node.why)}")
    for quarantine in record.quarantines:
        lines.append(f"- device {code_span(quarantine.device)} was quarantined: {_one_line(quarantine.why)}")
    for fatal in record.fatal:
        lines.append(f"- {code_span(fatal.file)} ended the process that collected it: {_one_line(fatal.why)}")
    lines += [f"- {_one_line(text)}" for text in record.expired]
    bad = [item for item in record.items if item.bad or item.verdict == Verdict.DEVICE_LOST.value]
    if bad:
        lines += ["", "| item | verdict | attempts | device | why |", "|---|---|---|---|---|"]
        lines += [_row(item) for item in bad[:SHOWN]]
        lines += [f"| and {len(bad) - SHOWN} more | | | | |"] if len(bad) > SHOWN else []
    flaky = [(item.nodeid, item.why) for item in record.items if item.flaky]
    muted = [(item.nodeid, f"{item.verdict}: {item.known}") for item in record.items if item.muted]
    for title, found in (("Flaky:", flaky), ("Known to fail:", muted)):
        if found:
            lines += ["", title, ""]
            lines += [f"- {code_span(nodeid)}: {_one_line(why)}" for nodeid, why in found[:SHOWN]]
    return "\n".join(lines) + "\n"


def _row(item: ItemRecord) -> str:
    device = item.attempts[-1].device if item.attempts else ""
    name, device = code_span(item.nodeid), markdown(device)
    return f"| {name} | {item.verdict} | {len(item.attempts)} | {device} | {_one_line(item.why)} |"


def _one_line(text: str) -> str:
    return markdown(" ".join(text.split())[:200])


def escape(text: str, *, value: bool = False) -> str:
    """Workflow commands end at the line and at their own separators."""
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if value else text


def commands(record: RunRecord) -> list[str]:
    found = []
    for item in record.items:
        if item.bad:
            path = escape(item.nodeid.split("::")[0], value=True)
            title = escape(f"{item.verdict}: {item.nodeid}", value=True)
            found.append(f"::error file={path},title={title}::{escape(item.why or item.verdict)}")
    found += [f"::error title=known to fail::{escape(text)}" for text in record.expired]
    for quarantine in record.quarantines:
        title = escape(f"device {quarantine.device} quarantined", value=True)
        found.append(f"::warning title={title}::{escape(quarantine.why)}")
    hidden = len(found) - ANNOTATIONS
    return found[:ANNOTATIONS] + ([f"::notice::and {hidden} more; see the step summary"] if hidden > 0 else [])
