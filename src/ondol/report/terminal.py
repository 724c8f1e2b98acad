"""Ondol's own words about a job: a few lines on standard error, the summary last, readable without colour; and a table
for the page of a GitHub Actions step.
"""

from collections.abc import Mapping

from ondol import units
from ondol.foreign_text import markdown, printable
from ondol.job_report import JobReport, ToolReport

PREFIX = "ondol: "


def lines(report: JobReport, *, quiet: bool, verbose: bool, require_warm: bool) -> list[str]:
    """What to print after the command. Quiet: only trouble, and the answer to a question that was asked."""
    asked, details = [], _details(report) if verbose else []
    if require_warm and report.compiled():
        names = report.compiled()
        asked.append(f"not warm: {len(names)} compiled that should have been in the store:")
        asked += [f"  {name}" for name in sorted(set(names))[: None if verbose else 20]]
    kept = [f"room kept: {report.room}"] if report.room_kept else []
    return _told(report, asked, [] if quiet else [*report.remarks, *details, *_summary(report)], kept)


def opened(report: JobReport, *, quiet: bool, verbose: bool) -> list[str]:
    """What to say when a room has been opened for somebody else to use."""
    filled = [f"{tool.name}: {units.entries(tool.filled)} filled" for tool in report.tools.values() if tool.filled]
    told = ", ".join(filled) or "nothing filled"
    summary = f"room open: {report.room}, {told} [{units.seconds(report.fill_seconds)}]"
    details = _details(report)[2:] if verbose else []
    return _told(report, [] if quiet else [*report.remarks, *details, summary])


def _told(report: JobReport, *parts: list[str]) -> list[str]:
    found = [f"warning: {text}" for text in report.warnings] + [line for part in parts for line in part]
    return [PREFIX + printable(line) for line in found]


def _summary(report: JobReport) -> list[str]:
    """A line for each tool that did something; the cost, which is the job's, at the end of the last."""
    told = [_one_tool(tool, report) for tool in report.busy()]
    if report.may_publish and any(tool.new for tool in report.busy()):
        told.insert(0, f"new entries are published: {report.publish_decision}")
    if not told and any(tool.managed for tool in report.tools.values()):
        told = ["nothing filled, nothing new"]
    return [*told[:-1], f"{told[-1]} [{_cost(report)}]"] if told else []


def _one_tool(tool: ToolReport, report: JobReport) -> str:
    used = "used unknown (no access times here)" if tool.used is None else f"{tool.used} used"
    parts = [f"{tool.filled} filled", used if tool.filled else "0 used", f"{tool.new} new"]
    if tool.remade:
        parts.append(f"{tool.remade} filled but made again")
    if tool.published or report.may_publish:
        parts.append(f"{tool.published} published")
    else:
        parts.append(f"0 published ({report.publish_decision})" if report.publish_decision else "0 published")
    if tool.seconds_saved:
        parts.append(f"about {units.seconds(tool.seconds_saved)} of compiling saved")
    return f"{tool.name}: {', '.join(parts)}"


def _cost(report: JobReport) -> str:
    cost = f"fill {units.seconds(report.fill_seconds)}, command {units.seconds(report.run_seconds)}"
    return cost + (f", publish {units.seconds(report.publish_seconds)}" if report.publish_seconds else "")


def _details(report: JobReport) -> list[str]:
    result = [f"store: {report.store}, scope {report.scope or 'none'}", f"publish: {report.publish_decision}"]
    result += [f"set: {name}={value}" for name, value in report.env.items()]
    for tool in report.tools.values():
        if tool.filled:
            result.append(f"{tool.name}: filled {units.size(tool.filled_bytes)}")
        if tool.left_out:
            result.append(f"{tool.name}: {units.entries(tool.left_out)} left in the store (fill-max)")
        if tool.beside:
            result.append(f"{tool.name}: {units.entries(tool.beside)} published while the command ran")
        if tool.already_there:
            result.append(f"{tool.name}: {units.entries(tool.already_there)} were published by others meanwhile")
        result += [f"{tool.name}: {count} {kind}, not published" for kind, count in tool.refused.items()]
        result += [f"{tool.name}: bad pack {reason}" for reason in tool.bad_reasons]
    return result


def step_summary(report: JobReport) -> str:
    """Markdown for GitHub Actions."""
    rows = ["### Ondol", ""]
    if report.busy():
        rows += ["| tool | filled | used | new | published | compiling saved |", "|---|---:|---:|---:|---:|---:|"]
    else:
        rows.append("Nothing was filled and nothing new was made.")
    for tool in report.busy():
        used = "?" if tool.used is None else str(tool.used)
        counts = (str(tool.filled), used, str(tool.new), str(tool.published), units.seconds(tool.seconds_saved))
        rows.append(f"| {markdown(tool.name)} | {' | '.join(counts)} |")
    rows += ["", f"Publishing: {markdown(report.publish_decision) or 'nothing to decide'}."]
    rows += [f"- ⚠ {markdown(text)}" for text in report.warnings]
    rows += [f"- {markdown(text)}" for text in report.remarks]
    return "\n".join(rows) + "\n"


def append_step_summary(text: str, environment: Mapping[str, str]) -> str:
    """On GitHub Actions: to the page of this step, which others write on too. Says why it could not, or nothing."""
    path = environment.get("GITHUB_STEP_SUMMARY")
    try:
        if path:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text + "\n")
    except OSError as error:
        return f"the step summary could not be written to {path}: {error.strerror}"
    return ""
