"""The life of a job: open a room, fill it, run the command, harvest, publish, say what happened, close the room.

One rule above all others: nothing that happens on our side changes what the command does or how it ends, except where
the user asked for that (`--strict`, `--require-warm`). Every step but the command itself may fail, and then the job
is colder.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ondol import exitcodes
from ondol.config import Settings
from ondol.errors import OndolError, RoomError
from ondol.events import JobReport
from ondol.host import bounded, command, filesystem, identity
from ondol.jobs.store_location import location
from ondol.light import Any
from ondol.room import choose, room
from ondol.tools import registry
from ondol.tools.api import CacheDir, Tool
from ondol.trust import ci, policy

TYPE_CHECKING = False
if TYPE_CHECKING:  # the rest is imported by the step that needs it: a job with nothing to fill or publish feels free
    from ondol.jobs import publish
    from ondol.room import fill
    from ondol.tools.api import Found

#: (what is being done, done, total)
Progress = Callable[[str, int, int], None]


class Interrupted(BaseException):
    """A signal that ends Ondol's own work; the room is still removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Job:
    def __init__(self, argv: Sequence[str], settings: Settings, env: Mapping[str, str], progress: Progress) -> None:
        self.argv = list(argv)
        self.settings = settings
        self.env = dict(env)
        self.progress = progress
        self.report = JobReport()
        self.report.command = self.argv
        self.host = identity.this_host()
        self.event = ci.read_event(env, _read_json)
        self.scopes = policy.scopes(settings.scope, self.event)
        self.report.scope = self.scopes.write
        self.store_path = location(settings)
        self.report.store = self.store_path
        self.room: room.Room | None = None
        self.managed: list[Tool] = []
        self.filled: dict[str, list[fill.Filled]] = {}
        self.used: dict[str, list[fill.Filled]] = {}
        self.store_works = True
        self.started = False

    # -- the walk -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """The whole job; returns the exit status."""
        asked, tools = _tools(self.settings)
        with _signals_raise() as signals:
            try:
                self._guarded("running cold", lambda: self._prepare(tools, asked))
                if self.settings.strict and self.report.warnings:
                    self.report.remarks.append("--strict: the command was not started")
                    return exitcodes.STRICT
                self._run_command()
                self._guarded("nothing new was published", self._after)
                return self._final_status(self.report.status)
            except Interrupted as interruption:
                self.report.remarks.append(f"interrupted by {signal.Signals(interruption.number).name}")
                return self.report.status if self.started else exitcodes.from_signal(interruption.number)
            finally:
                signals.ignore()  # a second signal must not stop us from cleaning up
                self._close_room()

    def _guarded(self, otherwise: str, step: Callable[[], None]) -> None:
        """A bug of ours is cache trouble like any other: said once, with its place, and the command is not touched."""
        try:
            step()
        except Exception as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            self.report.warn(f"{otherwise}: an error in Ondol itself, {type(error).__name__}: {error} at {place}")

    def _prepare(self, tools: list[Tool], asked: bool) -> None:
        self._open_room()
        self._plan(tools, asked)
        if self.managed:
            self._fill()

    def _open_room(self) -> None:
        probes: dict[str, filesystem.Usable] = {}

        def attempt(path: str) -> choose.Tried:
            probes[path] = usable = filesystem.try_directory(path)
            network = not usable.why_not and filesystem.is_network(filesystem.fs_type(path))
            return choose.Tried(usable.why_not, network)

        try:
            choice = choose.choose(choose.candidates(self.settings.room_dir, self.env), attempt)
            base = choice.candidate.path
            for passed, why in choice.passed:
                if passed.source == "--room-dir":
                    self.report.warn(f"--room-dir {passed.path} was passed over: {why} (using {base})")
            room.sweep(base)
            self.room = room.open_room(base, keeps_atime=probes[base].keeps_atime)
            self.report.room = self.room.path
        except RoomError as error:
            self.report.warn(f"running without a room: {error.line()}")

    def _plan(self, tools: list[Tool], asked: bool) -> None:
        if self.room is None:
            return
        nested = self.env.get(room.VARIABLE, "")
        self._set(self.room.env())
        for tool in tools:
            plan = tool.plan(self.env, self.room.cache_dir(tool.name), asked=asked)
            self.report.update(tool.name, managed=plan.managed)
            if plan.remark and not nested:
                self.report.remarks.append(plan.remark)
            if plan.managed and self._make_cache_dir(tool):
                self._set(plan.env)
                self.managed.append(tool)

    def _make_cache_dir(self, tool: Tool) -> bool:
        assert self.room is not None
        try:
            self.room.make_cache_dir(tool.name)
        except OSError as error:
            self.report.update(tool.name, managed=False)
            self.report.warn(
                f"running without a {tool.name} cache: {error.strerror or error} in the room {self.room.path} "
                "(fix: a larger --room-dir)"
            )
            return False
        return True

    def _set(self, variables: Mapping[str, str]) -> None:
        self.env |= variables
        self.report.env |= variables

    def _fill(self) -> None:
        started = time.monotonic()
        try:
            answer = bounded.call(self._fill_in_child, self.settings.store_timeout, self._progress("filling"))
        except bounded.TimedOut as error:
            self._store_trouble(
                f"the store at {self.store_path} is too slow: {error.line()} (fix: a larger --store-timeout)"
            )
        except OndolError as error:
            self._store_trouble(error.line())
        else:
            self._take_fill(answer)
        self.report.fill_seconds = time.monotonic() - started

    def _store_trouble(self, text: str) -> None:
        """The store failed us before the command: the job runs colder, says so once, and leaves the store alone."""
        self.store_works = False
        self.report.warn(f"running cold: {text}")

    def _fill_in_child(self, report: bounded.Report) -> Any:
        from ondol.jobs.open_store import open_store

        assert self.room is not None
        store = open_store(self.settings)
        answers: dict[str, Any] = {}
        for tool in self.managed:
            index = store.index(tool.name, self.scopes.read)
            if not index:
                continue
            from ondol.room import fill, select

            size = sum(stored.size for stored in index)
            uses = store.last_uses() if size > self.settings.fill_max else {}
            accepts = partial(tool.accepts, host=self.host)
            choice = select.select(index, accepts, uses, self.settings.fill_max)
            result = fill.fill(
                store,
                tool,
                choice.wanted,
                self.room.cache_dir(tool.name),
                self.room.stage,
                report,
                os.cpu_count() or 1,
                self.settings.store_timeout,
            )
            answers[tool.name] = (*fill.plain(result), choice.left_out)
        return answers

    def _take_fill(self, answers: dict[str, Any]) -> None:
        if not answers:
            return
        from ondol.room import fill

        for name, (filled, bad, stopped, left_out) in answers.items():
            result = fill.merge([(filled, bad, stopped)])
            self.filled[name] = result.filled
            self.report.update(
                name,
                filled=len(result.filled),
                filled_bytes=sum(entry.raw_bytes for entry in result.filled),
                left_out=left_out,
                bad_packs=len(result.bad),
                bad_reasons=tuple(f"{bad.place}: {bad.why}" for bad in result.bad),
            )
            if result.bad:
                aside = sum(bad.set_aside for bad in result.bad)
                self.report.warn(
                    f"{len(result.bad)} bad {name} pack(s) in {self.store_path} were not used, {aside} set aside; "
                    f"first: {result.bad[0].why} (fix: ondol store verify --store {self.store_path})"
                )
            if stopped:
                self.report.warn(f"the room is only partly filled: {stopped} (fix: a larger --room-dir)")

    def _run_command(self) -> None:
        started = time.monotonic()

        def on_end(ended: command.Ended) -> None:
            self.started = True
            self.report.run_seconds = time.monotonic() - started
            self.report.status = ended.status
            if ended.not_started:
                self.report.remarks.append(ended.not_started)

        command.run(self.argv, self.env, on_end)

    def _after(self) -> None:
        settings, status = self.settings, self.report.status
        write = self.scopes.write
        decision = policy.may_publish(settings.publish, self.event, write, frozen=settings.frozen, status=status)
        self.report.may_publish = decision.publish
        self.report.publish_decision = decision.because
        if self.room is None:
            return
        new: dict[str, list[Found]] = {}
        for tool in self.managed:
            new[tool.name] = self._look(tool)
        if decision.publish and self.store_works and (any(new.values()) or any(self.used.values())):
            self._publish(new)

    def _look(self, tool: Tool) -> list[Found]:
        """What was used and what is new; nothing is published here."""
        assert self.room is not None
        filled = self.filled.get(tool.name, [])
        if not filled and _is_empty(self.room.cache_dir(tool.name)):
            self.report.update(tool.name, used=0)
            return []
        from ondol.room import harvest

        used = harvest.usage(filled, keeps_atime=self.room.keeps_atime)
        cache = CacheDir(self.room.cache_dir(tool.name), ours=True)
        new = harvest.new_entries(tool, cache, filled, self.host)
        refused: dict[str, int] = {}
        for refusal in new.refused:
            refused[refusal.kind] = refused.get(refusal.kind, 0) + 1
        self.report.update(
            tool.name,
            used=len(used.used) if used.known else None,
            remade=len(used.remade),
            new=len(new.found),
            new_titles=tuple(item.title for item in new.found) + tuple(item.title for item in used.remade),
            refused=refused,
            seconds_saved=sum(entry.seconds for entry in used.used),
        )
        self.used[tool.name] = used.used
        if used.known and filled and not used.used and (new.found or used.remade):
            self.report.remarks.append(
                f"{tool.name}: {len(filled)} entries were filled and none was used: other kernels, or another "
                f"{tool.name} or compiler version than the store's"
            )
        return new.found

    def _publish(self, new: dict[str, list[Found]]) -> None:
        from ondol.jobs.publish import Outcome

        started = time.monotonic()

        def in_child(report: bounded.Report) -> Any:
            return self._publish_in_child(new, report)

        try:
            answers = bounded.call(in_child, self.settings.store_timeout, self._progress("publishing"))
        except bounded.TimedOut as error:
            self.report.warn(f"not everything was published to {self.store_path}: {error.line()}")
        except OndolError as error:
            if any(new.values()):
                self.report.warn(f"nothing new was published: {error.line()}")
        else:
            for name, answer in answers.items():
                self._take_publish(name, Outcome(*answer))
        self.report.publish_seconds = time.monotonic() - started

    def _publish_in_child(self, new: dict[str, list[Found]], report: bounded.Report) -> Any:
        from ondol.jobs import publish
        from ondol.jobs.open_store import open_store
        from ondol.room import fill

        assert self.room is not None
        store = open_store(self.settings)
        answers = {}
        origin = publish.provenance(self.env, os.getcwd()) if any(new.values()) else {}
        for tool in self.managed:
            cache = CacheDir(self.room.cache_dir(tool.name), ours=True)
            found, seconds = new[tool.name], self.settings.store_timeout
            if found:
                outcome = publish.publish(store, tool, cache, found, self.scopes.write, origin, report, seconds)
                answers[tool.name] = tuple(outcome)
            store.note_use([fill.address_of(tool.name, entry) for entry in self.used.get(tool.name, [])])
        return answers

    def _take_publish(self, name: str, outcome: publish.Outcome) -> None:
        refused = dict(self.report.tools[name].refused)
        for kind, _, _ in outcome.refused:
            refused[kind] = refused.get(kind, 0) + 1
        self.report.update(
            name,
            published=outcome.published,
            published_bytes=outcome.published_bytes,
            already_there=outcome.already_there,
            refused=refused,
        )
        if outcome.trouble:
            what, because, hint = outcome.trouble
            self.report.warn(f"not everything was published: {OndolError(what, because=because, hint=hint).line()}")

    def _final_status(self, status: int) -> int:
        if status == 0 and self.settings.require_warm and self.report.compiled():
            return exitcodes.NOT_WARM
        if status == 0 and self.settings.strict and self.report.warnings:
            return exitcodes.STRICT
        return status

    def _close_room(self) -> None:
        if self.room is None:
            return
        if self.settings.keep_room:
            self._keep_room(self.room)
        elif not self.room.close():
            self.report.remarks.append(f"the room {self.room.path} holds files that could not be removed")

    def _keep_room(self, kept: room.Room) -> None:
        self.report.room_kept = True
        try:
            kept.keep()
        except OSError as error:
            self.report.warn(f"the room {kept.path} may be swept by a later job: {error.strerror or error}")

    def _progress(self, what: str) -> bounded.Progress:
        return lambda done, total: self.progress(what, done, total)


def _tools(settings: Settings) -> tuple[bool, list[Tool]]:
    if settings.tools == ["auto"]:
        return False, list(registry.TOOLS.values())
    if settings.tools == ["none"]:
        return False, []
    return True, registry.choose(settings.tools)


def _is_empty(directory: str) -> bool:
    try:
        return not os.listdir(directory)
    except OSError:
        return True  # the command removed it


def _read_json(path: str) -> Any:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


class _signals_raise:  # noqa: N801 - reads as a phrase: `with _signals_raise():`
    """While Ondol itself works, a signal ends that work in an orderly way; it never kills between two steps."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> _signals_raise:
        self._before = {number: signal.getsignal(number) for number in self._NUMBERS}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:  # nohup stays nohup
                signal.signal(number, self._raise)
        return self

    def ignore(self) -> None:
        for number in self._NUMBERS:
            signal.signal(number, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @staticmethod
    def _raise(number: int, _frame: object) -> None:
        raise Interrupted(number)
