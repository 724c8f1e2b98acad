"""A run on GitHub Actions: one annotation per bad item, and a step summary."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ondol.fleet.record import RunRecord
from ondol.report import run_markdown

#: GitHub shows ten of each kind per step.
SHOWN = 10


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
        title = escape(f"device {quarantine.device} set aside", value=True)
        found.append(f"::warning title={title}::{escape(quarantine.why)}")
    hidden = len(found) - SHOWN
    return found[:SHOWN] + ([f"::notice::and {hidden} more; see the step summary"] if hidden > 0 else [])


def here(environment: Mapping[str, str]) -> bool:
    return environment.get("GITHUB_ACTIONS") == "true"


def write_step_summary(record: RunRecord, environment: Mapping[str, str]) -> None:
    """Appended, as GitHub asks; a summary that cannot be written is not the run's problem."""
    target = environment.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    try:
        with open(Path(target), "a", encoding="utf-8") as file:
            file.write(run_markdown.render(record) + os.linesep)
    except OSError:
        pass
