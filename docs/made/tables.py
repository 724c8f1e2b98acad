"""The pages of settings, variables and tools, made from `options.py` and `tools/table.py`."""

from __future__ import annotations

from pathlib import Path

from ondol.config import FILES, INTERNAL, SITE_FILE, USER_FILE
from ondol.options import BY_NAME, FILES_ONLY, OUTSIDE, Option
from ondol.tools import table
from ondol.tools.table import Row

RETRIES = BY_NAME["retries"]
TESTS = [option for option in BY_NAME.values() if option.taken_by("test") and not option.taken_by("run")]

_SETTINGS = """# Settings

Made from `options.py` by `python docs/made`; a test compares.

The command line beats the environment beats files. Of these, the first that says something counts:

1. the project's: the nearest {files}, in the current directory or above it, up to the top of the checkout; outside
   any checkout in the current directory only;
2. the user's: `{user}` (`$XDG_CONFIG_HOME`);
3. the site's: `{site}`.

A relative path is relative to the file that says it; on the command line and in variables, to the current directory.
A flag is switched off by `--no-NAME`. `ondol config` shows every value, where it came from and what paths resolve to.

**Which files are used.** Regular files of at most 1 MiB, no links, that belong to you or to root and that nobody else
can write; the same holds for every directory from the file up to the top of the checkout (for 2 and 3: up to `/`). A
sticky directory, such as /tmp, may be writable by all. A group that has you as its only member is you. A file that
cannot be used, an unknown key, an impossible value: a warning, and the rest counts; `ondol config` ends with status 2.
On the command line and in variables they are errors.

**What a project's file can say.** *Convenience*: always. *Trust*: on CI never, because a pull request can edit the
file; off CI in a checkout of your own (git's `safe.directory` rule), except where it says *user, site*. It can always
*tighten*: `publish = "never"`, `frozen = true`, `strict = true`, `require-warm = true`, `share = "off"`, fewer `tools`.
What is ignored is shown once, with what to type instead.
`trusted-jobs` has neither flag nor variable: [why](../how-to/run-strangers-code.md#jenkins).

A flag belongs to the commands that need it; `ondol COMMAND --help` lists them. The variable and the key count for all
of these. All variables: [environment.md](environment.md).

## Caches

| flag | variable | key in files | default | class | meaning |
|---|---|---|---|---|---|
{caches}

## Tests

For `ondol test`. What is said nowhere here may stand in pytest's ini file ([how](test-options.md)).

| flag | variable | key in files | default | class | meaning |
|---|---|---|---|---|---|
{tests}
"""

_ENVIRONMENT = """# Variables

Made from `options.py` by `python docs/made`; a test compares.

Every [setting](settings.md) has a variable. The command line beats it, and it beats files. An empty one counts as not
set. A variable that looks like one of these and is none is named, with the one that was probably meant.

| variable | the same as | meaning |
|---|---|---|
{settings}

Set by Ondol itself. A value of your own is replaced:

| variable | what it tells |
|---|---|
{internal}

Each managed tool's own variables, and `TMPDIR`, are set for the command as well: [tools.md](tools.md).
"""

_TOOLS = """# Tools

Made from `tools/table.py` by `python docs/made`; a test compares.

`ondol run` gives a job a private cache for each tool that is *shared* below, fills it from the store and publishes what
is new. `--tools NAMES` chooses others; `--tools auto,numba` adds one, `--tools auto,-triton` leaves one alone. A value
that you have set for one of a tool's own variables wins, and the summary says so. It is replaced for the command if you
name the tool, or if it names a directory that is not yours alone. `ondol config` tells what a job would do here.
A tool that is not here can be added: [how](../how-to/add-a-tool.md).

{classes}

An entry is served only where its fingerprint fits: what the tool's own key does not cover, and what would break or
mislead another machine.

Autotuning results fix a choice that was measured. They are shared only between machines of one driver and the same
device models, and never with a job that measures performance: with `--frozen` or `--require-warm` none is taken or
given, and the job says so.

| tool | what | versions checked | class | in a job |
|---|---|---|---|---|
"""


def settings() -> str:
    files = f"`{FILES[0]}`, or `{FILES[1]}` with a `[tool.ondol]` table"
    caches = [option for option in BY_NAME.values() if option not in TESTS]
    parts = {"caches": "\n".join(map(_setting, caches)), "tests": "\n".join(map(_setting, TESTS))}
    return _SETTINGS.format(files=files, user=USER_FILE, site=SITE_FILE, **parts)


def _flag(option: Option) -> str:
    between = {"flag": "", "switch": "="}.get(option.kind, " ")
    own = f"ondol {option.commands} " if option.table == option.commands else ""
    return f"`{own}{option.flag}{between}{option.metavar.replace('|', '/')}`"


def _setting(option: Option) -> str:
    said = ("–", "–") if option.least == FILES_ONLY else (_flag(option), f"`{option.variable}`")
    sort = option.sort + (": user, site" if option.least >= OUTSIDE else "")
    return f"| {said[0]} | {said[1]} | `{option.key}` | {_default(option)} | {sort} | {option.help} |"


def _default(option: Option) -> str:
    if option.kind == "flag":
        return "on" if option.default else "off"
    return f"`{option.show(option.default)}`".replace("``", "–")


def environment() -> str:
    typed = [option for option in BY_NAME.values() if option.least != FILES_ONLY]
    rows = [f"| `{option.variable}` | {_flag(option)} | {option.help} |" for option in typed]
    internal = [f"| `{name}` | {text or 'between processes of Ondol'} |" for name, text in INTERNAL.items()]
    return _ENVIRONMENT.format(settings="\n".join(rows), internal="\n".join(internal))


def test_options() -> str:
    """The page itself, with the table between its two lines made anew."""
    page = (Path(__file__).parents[1] / "reference" / "test-options.md").read_text()
    first, last = "|---|---|---|\n", "\n\n## Verdicts"
    rows = [f"| {_flag(option)} | {_default(option)} | {option.help} |" for option in (RETRIES, *TESTS)]
    before, _, rest = page.partition(first)
    return before + first + "\n".join(rows) + last + rest.partition(last)[2]


def tools() -> str:
    classes = "\n".join(f"- {letter}: {meaning}" for letter, meaning in table.SHARING.items())
    summary = [
        f"| [{row.name}](#{row.name}) | {row.summary} | {row.versions} | {row.sharing} | {_in_a_job(row)} |"
        for row in table.ROWS
    ]
    return _TOOLS.format(classes=classes) + "\n".join(summary) + "\n" + "".join(map(_section, table.ROWS))


def _in_a_job(row: Row) -> str:
    if not row.travels:
        return f"set up by `{row.setting.replace('-', '.', 1)}`" if row.setting else "left alone"
    return "shared" if row.unasked and row.sets else "by name"


def _section(row: Row) -> str:
    told = [f"- {line}" for line in _facts(row)]
    note = f"\n{row.note[0].upper()}{row.note[1:]}\n" if row.note else ""
    return f"\n## {row.name}\n\n" + "\n".join(told) + "\n" + note


def _facts(row: Row) -> list[str]:
    facts = [f"sets `{name}={value}`" for name, value in row.sets.items()]
    facts += [f"in a job that may only read: `{name}={value}`" for name, value in row.reading.items()]
    facts += [f'with `{row.name}.autotune = "on"`: `{name}={value}`' for name, value in row.tuning.items()]
    if not facts:
        facts = ["sets nothing"]
    if row.moved_by:
        facts.append(
            "your own value wins where the directory is yours alone: " + ", ".join(f"`{name}`" for name in row.moved_by)
        )
    facts += [f"where you have set `{name}`, it becomes `{value}`" for name, value in row.along.items()]
    if row.keeps:
        facts.append("kept and mentioned: " + ", ".join(f"`{name}`" for name in row.keeps))
    if row.places:
        facts.append("without Ondol: " + ", else ".join(f"`{place}`" for place in row.places))
    if row.fingerprint:
        facts.append(f"fingerprint: {row.fingerprint}")
    if row.risk:
        facts.append(f"only by name: {row.risk}")
    return facts
