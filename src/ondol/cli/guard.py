"""`ondol guard [--cache DIR] [options] -- COMMAND …`"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from ondol import exitcodes, unguarded, units
from ondol.cli import command_first, flags, output
from ondol.config import TYPED_HERE, Settings
from ondol.errors import UsageError
from ondol.guard.guarded_command import Guard
from ondol.host import filesystem

_USAGE = "ondol guard [--cache DIR] [options] -- COMMAND …"
_DESCRIPTION = """Run a command that uses a shared cache (uv, pip): one at a time, healed if the cache is at fault.

The lock belongs to the directory itself: two caches never wait for each other, one cache always does, whatever TMPDIR,
user or path. Trouble with locks never stops the command. If the command fails, and the error is one that is known to
come from the cache, the bad entries are found by their own checksums and set aside, and it is run once more. No good
entry is touched. Network errors, resolver errors, full disks and unknown failures never touch the cache. Streams,
signals and exit status are the command's own."""
_EXAMPLES = """\
  ondol guard -- uv pip install -r requirements.txt       the cache that uv itself names
  ondol guard --cache /ci-cache/uv -- make deps
  ondol guard --shared -- uv sync                         several at once; alone only while healing
  ondol guard --verify -- uv pip install torch            look for bad entries first
  ondol guard --cache /ci-cache/uv --selftest             prove on this machine that the lock works

exit status: the command's own; 126 not executable, 127 not found. --selftest: 0 proved, 1 not"""


def main(arguments: list[str]) -> int:
    ours, command = unguarded.split(arguments)
    parsed = flags.parser("guard", _DESCRIPTION, _EXAMPLES, usage=_USAGE).parse_args(ours)
    for name in [name for name, value in vars(parsed).items() if value == ""]:
        delattr(parsed, name)  # `--cache "$UV_CACHE_DIR"`, which is not set here
    if parsed.selftest:
        return _selftest(flags.settings(parsed))
    if not command:
        raise UsageError("no command to run", hint=_USAGE)
    return command_first.or_plainly(command, lambda: _guard(flags.settings(parsed), command))


def _named_cache(settings: Settings) -> str:
    """The cache that the user named. A file that names nonsense costs its word, and not the command."""
    try:
        if settings.guard_cache:
            _check_cache(settings.guard_cache, selftest=False)
    except UsageError as error:
        if settings.origin("guard-cache") == TYPED_HERE:
            raise
        _tell(f"warning: {settings.origin('guard-cache')}: {error.what}, and is ignored")
        return ""
    return str(settings.guard_cache)


def _check_cache(cache: str, *, selftest: bool) -> None:
    """What can be no cache is a slip of the pen; one that does not exist may be: nothing is made there."""
    real = filesystem.real(cache)
    with suppress(OSError):  # asked once: asked twice, a cache that is being moved is there and no directory
        if stat.S_ISDIR(os.stat(real).st_mode) and real != "/":
            return
        what = "the root of the file system" if real == "/" else "not a directory"
        raise UsageError(f"--cache {cache!r} is {what}", hint=_USAGE)
    if selftest:
        raise UsageError(f"--cache {cache!r} does not exist", hint=f"mkdir {cache}, if it is no mistake")
    _tell(f"warning: the cache {real} does not exist, and is not made: only your own commands wait for each other")


def _guard(settings: Settings, command: list[str]) -> Callable[[], int]:
    from ondol.guard import guarded_command
    from ondol.host import command as running
    from ondol.report.progress import ProgressBar

    running.hold_standard_descriptors()
    named = _named_cache(settings)
    cache = named or guarded_command.cache_of(command, os.environ)
    bar = ProgressBar(enabled=not settings.quiet)
    job = guarded_command.Guard(command, cache, settings, os.environ, _tell, bar, make=not named)

    def run() -> int:
        status = job.run()
        command_first.afterwards(bar.close, lambda: _conclude(job, settings))
        return status

    return run


def _tell(text: str) -> None:
    output.tell(f"ondol: {text}")


def _conclude(report: Guard, settings: Settings) -> None:
    if report.not_started:
        _tell(report.not_started)
    if settings.verbose:
        _tell(f"lock: {report.lock.standing or 'none'}")
        for reason in report.lock.passed:
            _tell(f"lock not used: {reason}")
    if report.happened() and not settings.quiet:
        _tell(_summary(report))
    trouble = output.write_json(report.as_dict(), settings.guard_json) if settings.guard_json else ""
    if trouble:
        _tell(f"warning: {trouble}")


def _summary(report: Guard) -> str:
    parts = []
    if report.lock.waited >= 1.0:
        parts.append(f"waited {units.seconds(report.lock.waited)} for the lock")
    taken = sum(bool(one.kept) for healed in report.healed for one in healed.taken)
    if taken:
        parts.append(f"{units.plural(taken, 'bad entry', 'bad entries')} set aside")
    if len(report.attempts) > 1:
        end = "succeeded" if report.status == 0 else f"failed with status {report.status}"
        parts.append(f"{end} at attempt {len(report.attempts)}")
    return f"guard: {', '.join(parts) or 'nothing could be done'}"


def _selftest(settings: Settings) -> int:
    from ondol.guard import lock

    if not settings.guard_cache:
        raise UsageError("which cache?", hint="ondol guard --cache DIR --selftest")
    _check_cache(settings.guard_cache, selftest=True)
    turns = lock.prove(settings.guard_cache, os.environ, settings.guard_wait)
    clashes, waits = sum(turn.clash for turn in turns), sum(turn.waited for turn in turns)
    proved = turns[0].standing and not clashes and waits
    output.say(f"lock: {turns[0].standing or 'none'}")
    for reason in turns[0].passed:
        output.say(f"not used: {reason}")
    outcome = "one at a time" if proved else f"NOT one at a time: {units.plural(clashes, 'clash', 'clashes')}"
    output.say(f"{lock.PROCESSES} processes took it {len(turns)} times and waited {waits} times: {outcome}")
    return exitcodes.OK if proved else 1
