"""The page of known faults, made from their files."""

from __future__ import annotations

from ondol.explain.signature import Signature, load

_HEAD = """# Known faults

Made from `explain/signatures/*.toml` by `python docs/made`; a test compares.

`ondol explain` names them in logs ([how](../how-to/explain-a-failed-log.md)); `ondol explain --list` lists them. Only
faults of kind `cache` are ever healed. A *warning* is survived by the tool that prints it, and never given as the cause
of a failure. In the excerpts, the message is the tool's own unless the source says otherwise; paths and frames around
it are shortened or filled in.

| kind | what is at fault |
|---|---|
| cache | the cache itself: something in it is torn, stale or foreign |
| place | where the cache is: owner, mode, mount, lock, space |
| network | something that could not be reached |
| request | what was asked for: it does not exist |
| killed | nothing of its own: it was ended from outside |
| bug | a version of the tool |
"""


def page() -> str:
    tools = dict.fromkeys(known.tool for known in load())
    groups = [_group(tool, [known for known in load() if known.tool == tool]) for tool in sorted(tools, key=_any_last)]
    return _HEAD + "\n" + "\n\n".join(groups) + "\n"


def _any_last(tool: str) -> tuple[bool, str]:
    return tool == "any", tool


def _group(tool: str, known: list[Signature]) -> str:
    return "\n\n".join([f"## {'any tool' if tool == 'any' else tool}", *map(_one, known)])


def _one(known: Signature) -> str:
    kind = f"{known.kind}, warning" if known.warning else known.kind
    healed = f" · healed with the `{known.heals}` cache" if known.heals else ""
    lines = [
        f"### {known.id}",
        "",
        f"*{kind}*{healed} · {known.source}",
        "",
        known.meaning,
        "",
        f"**Cure.** {known.cure}",
    ]
    return "\n".join([*lines, "", "```", known.example.strip("\n"), "```"])
