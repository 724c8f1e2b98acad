"""The job as a table in a GitHub Actions step summary."""

from __future__ import annotations

from ondol import words
from ondol.job_report import JobReport


def markdown(report: JobReport) -> str:
    rows = [
        "### Ondol",
        "",
        "| tool | filled | used | new | published | compiling saved |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for tool in report.busy():
        used = "?" if tool.used is None else tool.used
        saved = words.seconds(tool.seconds_saved)
        rows.append(
            f"| {words.markdown(tool.name)} | {tool.filled} | {used} | {tool.new} | {tool.published} | {saved} |"
        )
    if not report.busy():
        rows = ["### Ondol", "", "Nothing was filled and nothing new was made."]
    rows += ["", f"Publishing: {words.markdown(report.publish_decision) or 'nothing to decide'}."]
    rows += [f"- ⚠ {words.markdown(text)}" for text in report.warnings]
    rows += [f"- {words.markdown(text)}" for text in report.remarks]
    return "\n".join(rows) + "\n\n"
