"""`ondol open [options]` and `ondol close [ROOM] --status N`"""

import argparse
import os
import shlex
from collections.abc import Mapping

from ondol.cli import command_first, flags, output
from ondol.cli.run import tell_report
from ondol.errors import UsageError
from ondol.host import files
from ondol.jobs.open_close import STATUS_WORDS, Opened, close_room, open_room
from ondol.report import terminal
from ondol.report.progress import ProgressBar
from ondol.room.handover import DEFAULT_PLACE, RUNTIMES, Wall, check_place, is_plain
from ondol.room.room import VARIABLE, Room

_SELINUX = "/sys/fs/selinux/enforce"


@flags.command(
    "open",
    """Open a room for a job that Ondol does not start itself: in a container, or over several CI steps.

Prints what the job needs, for a shell or for a container runtime's command line. `ondol close` harvests the room,
publishes what is new and removes it; one that nobody closes is removed by a later job after seven days or a reboot.
If there can be no room, nothing is printed, the job runs as it would without Ondol, and a warning says why.""",
    """\
  eval "$(ondol open --tools triton)"; pytest tests; ondol close --status $?

  flags=$(ondol open --format docker --room-file room)
  docker run --rm $flags IMAGE pytest tests; ondol close "$(cat room)" --status $?

  ondol open --format pyxis                        flags for srun --container-image …
  ondol open --format github                       for the later steps of a GitHub job
  ondol open --format json --at /caches --uid 1000 for a program of your own""",
)
def open_command(parsed: argparse.Namespace) -> int:
    how = _wall(parsed)
    settings = flags.settings(parsed, told=False)
    with ProgressBar(enabled=not settings.quiet) as bar:
        opened = open_room(settings, os.environ, bar, how)
    if opened.room:
        _hand_out(opened, opened.room, parsed)
    for line in terminal.opened(opened.report, quiet=settings.quiet, verbose=settings.verbose):
        output.tell(line)
    return opened.status


def _wall(parsed: argparse.Namespace) -> Wall:
    runtime = RUNTIMES.get(parsed.format)
    mounted = parsed.at is not None or bool(runtime and runtime.mount)
    if parsed.at is not None and not (parsed.format == "json" or (runtime and runtime.mount)):
        raise UsageError(f"--at has no meaning with --format {parsed.format}", because="nothing is mounted there")
    at = check_place(parsed.at or DEFAULT_PLACE) if mounted else ""
    return Wall(at, mounted, not mounted or (runtime is not None and runtime.inherits), parsed.uid)


def _hand_out(opened: Opened, room: Room, parsed: argparse.Namespace) -> None:
    env = opened.report.env
    try:
        if parsed.room_file:
            with open(parsed.room_file, "w", encoding="utf-8") as file:
                file.write(room.path + "\n")
        if parsed.format == "github":
            write_github(env, {"room": room.path})
    except OSError as error:
        room.close()
        raise UsageError(f"cannot write {error.filename}", because=error.strerror or str(error))
    if parsed.format in RUNTIMES:
        _say_flags(parsed.format, room, env)
    elif parsed.format == "json":
        report, mount = opened.report, {"source": room.inner, "target": room.seen_as, "mode": "rw"}
        tools = {tool.name: {"managed": tool.managed, "filled": tool.filled} for tool in report.tools.values()}
        told = {"tools": tools, "warnings": report.warnings, "remarks": report.remarks}
        output.say_json("open", {"room": room.path, "mount": mount, "env": env, **told})
    elif parsed.format == "env":
        for name, value in env.items():
            output.data(f"export {name}={shlex.quote(value)}")


def _say_flags(name: str, room: Room, env: dict[str, str]) -> None:
    # A shell takes what `$(…)` gives apart at spaces and takes no quotes out: a word that needs them would be two.
    odd = [word for word in (room.inner, room.seen_as, *env.values()) if not is_plain(word)]
    if odd:
        room.close()
        raise UsageError(
            f"{odd[0]!r} cannot be written on a command line of {name}", hint="--room-dir, or --format json"
        )
    output.data(" ".join(RUNTIMES[name].flags(room.inner, room.seen_as, env, labelled=os.path.exists(_SELINUX))))


def write_github(env: dict[str, str], outputs: dict[str, str]) -> None:
    """For the steps that follow: variables, and outputs of this one."""
    for variable, values in (("GITHUB_ENV", env), ("GITHUB_OUTPUT", outputs)):
        path = os.environ.get(variable)
        if not path:
            raise UsageError(f"{variable} is not set", because="--format github is for a step of a GitHub job")
        with open(path, "a", encoding="utf-8") as file:
            file.write("".join(_github_line(name, value) for name, value in values.items()))


def _github_line(name: str, value: str) -> str:
    """A value with a line break must not become a variable of its own."""
    if value.isprintable():
        return f"{name}={value}\n"
    end = f"end-{files.random_name()}"
    return f"{name}<<{end}\n{value}\n{end}\n"


@flags.command(
    "close",
    """Harvest a room that `ondol open` opened, publish what is new if the rules allow it, remove the room.

The settings are those of `ondol open`, except what is given here; the CI event must be the same. What the job left in
the room decides nothing. Exit status: the given one, if it is a number (then 122 and 123 as with `ondol run`); a room
that is not there is a warning.""",
    """\
  ondol close --status $?                                   the room of $ONDOL_ROOM
  ondol close "$(cat room)" --status $? --json ondol.json
  ondol close "$room" --status ${{ job.status }}            a CI system's word: success, failure, cancelled
  sudo ondol close "$room" --status 0 --trust 3001          publish also what uid 3001 made in it""",
    room={"nargs": "?", "metavar": "ROOM", "help": f"the room (default: {VARIABLE})"},
)
def close_command(parsed: argparse.Namespace) -> int:
    if parsed.status is None:
        raise UsageError("--status is missing", hint=f"--status N, a number, or one of {', '.join(STATUS_WORDS)}")
    room = parsed.room if parsed.room is not None else os.environ.get(VARIABLE, "")
    if not room and parsed.room is None:
        raise UsageError("no room to close", because=f"{VARIABLE} is not set", hint="ondol close ROOM --status N")
    # Only from this command line: a step of the job could have set any ONDOL_ variable for the steps after it.
    given = flags.given(parsed)
    with ProgressBar(enabled=not given.get("quiet", False)) as bar:
        closed = close_room(room, parsed.status, given, os.environ, bar)
    _undo(parsed.format, closed.env_before)
    command_first.afterwards(lambda: tell_report(closed.report, closed.settings))
    return closed.status


def _undo(form: str | None, before: Mapping[str, str | None]) -> None:
    """TMPDIR must not lead to a directory that is gone, for whatever still runs after us."""
    if form == "env":
        for name, value in before.items():
            output.data(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")
    elif form == "github":
        # A variable of a GitHub job cannot be taken back; an empty one is the next best thing.
        write_github({name: value or "" for name, value in before.items()}, {})
