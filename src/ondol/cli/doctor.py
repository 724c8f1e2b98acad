"""`ondol doctor`"""

import argparse
import os

from ondol import exitcodes
from ondol.cli import doctor_text, flags, output
from ondol.config import Settings
from ondol.doctor import examine, gather, registry, repair
from ondol.doctor.api import ERROR, WARNING
from ondol.doctor.subject import Machine, the_machine
from ondol.doctor.walk import Bounds
from ondol.errors import OndolError
from ondol.host import bounded
from ondol.jobs import open_store
from ondol.report.progress import ProgressBar

#: A first look that takes longer than this is taken for a dead file server.
_TOUCH = gather.TOUCH_SECONDS


@flags.command(
    "doctor",
    """Look for what will fail a job, before a job finds out: in directories down to the leaves, by really
trying what jobs do there, and on the machine itself. Each finding says what, where, why it hurts, and what to type.

Without PATH: the store, the tools' caches, HOME, TMPDIR, the places for a room, and the machine. With PATH: these
directories only. Nothing is changed without --fix, and then only the caller's own files.

Exit status: 0 nothing wrong, or only warnings and notes; 1 errors (with --strict also warnings); 2 wrong usage.""",
    """\
  ondol doctor                                    what a job of this user would meet
  ondol doctor /ci-cache/triton                   one directory, to the leaves
  ondol doctor /ci-cache/triton --fix --dry-run   what could be mended without asking anybody
  ondol doctor --strict --json > doctor.json      as a step before the tests
  ondol doctor --list                             every check""",
    paths={"metavar": "PATH", "nargs": "*", "help": "directories to look at (default: what a job would use)"},
)
def main(parsed: argparse.Namespace) -> int:
    if parsed.list:
        output.say_lines(doctor_text.listing())
        return exitcodes.OK
    checks = registry.choose(parsed.only, parsed.skip)
    settings = flags.settings(parsed)
    patience = parsed.timeout
    machine = _machine(settings, patience or _TOUCH)
    bounds = Bounds(parsed.limit, parsed.walk_time)

    def look(bar: ProgressBar) -> examine.Examination:
        subjects = gather.subjects(machine, parsed.paths, bounds, patience or _TOUCH)
        if not parsed.paths:
            subjects.append(the_machine(machine))
        return examine.examine(subjects, checks, bar, patience)

    with ProgressBar() as bar:
        result = look(bar)
        repairs = [repair.Repaired(change) for finding in result.findings for change in finding.repairs]
        if parsed.fix and not parsed.dry_run and repairs:
            repairs = repair.carry_out([one.repair for one in repairs])
            result = look(bar)  # what counts is what is left
    shown = parsed.dry_run or parsed.fix
    facts = doctor_text.as_json(result, machine.uid, repairs, shown=shown)
    lines = doctor_text.lines(result, machine.uid, repairs, shown=shown)
    output.answer("doctor", facts, lines, as_json=parsed.json)
    failing = result.number_of(ERROR) + (result.number_of(WARNING) if parsed.strict else 0)
    return exitcodes.DOCTOR_FOUND if failing else exitcodes.OK


def _machine(settings: Settings, seconds: float) -> Machine:
    groups = frozenset([os.getegid(), *os.getgroups()])
    room_dir = os.path.abspath(settings.room_dir) if settings.room_dir else ""
    judge = open_store.judge(settings.trust)
    where = _store(settings, seconds)
    trusted = tuple(settings.trust)
    who = (os.geteuid(), os.getegid(), groups)
    return Machine(os.environ, *who, where, bool(settings.store), judge, trusted, room_dir)


def _store(settings: Settings, seconds: float) -> str:
    if settings.store:
        return open_store.location(settings)
    try:
        # Where the user's own store would be depends on whether HOME is writable, and HOME may be on a dead server.
        return str(bounded.call(lambda _report: open_store.default_location(), seconds))
    except OndolError:
        return ""
