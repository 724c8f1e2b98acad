"""One job: what it was asked to do, the facts that were found out at its start, and what has become of it so far.

The steps (`before`, `beside`, `after`, `sharing` …) read it; what they find out they tell it by its methods, so that
every change of it is on this page. `run_command` is the order of the steps.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ondol.config import Settings
from ondol.errors import UsageError
from ondol.host import bounded, files, identity
from ondol.job_report import JobReport
from ondol.jobs.open_store import location
from ondol.options import BY_NAME
from ondol.room import choose
from ondol.room.fill import Filled
from ondol.room.harvest import Span
from ondol.room.room import Room
from ondol.tools import registry
from ondol.tools.api import TUNED, CacheDir
from ondol.tools.table import Row
from ondol.trust import ci, policy

#: GitHub's limit for the details of an event, and some more.
_LARGEST_JSON = 32 << 20
#: (what is being done, done, total)
Progress = Callable[[str, int, int], None]


class Shared:
    """Our part in a room that the ranks of a job step share (`sharing`)."""

    def __init__(self, base: str, digest: str, member: str) -> None:
        self.base = base
        self.digest = digest
        self.member = member
        #: We have signed out.
        self.left = False
        #: A rank vanished, or was killed: what nobody calls whole is not published.
        self.cut_off: list[Span] = []
        #: Somebody may still be in the room: it is left to a later job, which looks.
        self.room_in_use = False


class Job:
    def __init__(
        self,
        argv: Sequence[str],
        settings: Settings,
        env: Mapping[str, str],
        progress: Progress,
        *,
        program: str = "",
        event: policy.Event | None = None,
        at: str | None = None,
        cut_off: Callable[[], list[Span]] = list,
    ) -> None:
        """`program`: what will be executed, if that is not the first word.

        `event`: what the CI system said where the job was asked for, if that was not here.
        `at`: for a room that others enter, the path at which they will see it (empty: its own); None for the job's own.
        `cut_off`: when somebody was writing who was killed, as far as anybody but the command's own end tells.
        """
        self.argv = list(argv)
        self.program = program or self.argv[0]
        self.settings = settings
        #: The tools that the user named, whose own variables no longer decide; and all.
        self.asked, self.tools = _tools(settings)
        #: The command's environment, as far as it is decided.
        self.env = dict(env)
        self.host = identity.this_host()
        self.event = event or ci.read_event(env, read_json, settings.trusted_jobs)
        self.scopes = policy.scopes(settings.scope, self.event)
        self.store_path = location(settings)
        self.at = at
        self.report = JobReport(self.argv, self.store_path, self.scopes.write)
        self.report.warnings += settings.warnings
        self.report.remarks += settings.remarks
        if self.scopes.passed_over and settings.publish != "never":
            self.report.remarks.append(self.scopes.passed_over)
        #: What ranks that share a room have in common; empty for a job on its own.
        self.share_key = choose.share_key(settings.share, env) if at is None else ""
        #: Whether the command waits until all is filled.
        self.fills_all = bool(self.measures or self.share_key or at is not None)
        self._cut_off = cut_off
        self.show_progress = progress

        # What has become of it.
        self.room: Room | None = None
        #: Whether it is we who fill it, and who publish while the command runs; else another rank does.
        self.fills_room = True
        #: Our part in it, if the ranks of a job step share it.
        self.shared: Shared | None = None
        self.managed: list[Row] = []
        #: Tools with a private cache that is neither filled nor published: their fixed path is not possible here.
        self.cold: list[Row] = []
        #: Words that start the command, if it cannot simply be started (`host/fixed_place`).
        self.through: list[str] = []
        #: Signs what is published, if there is a key.
        self.sign: Callable[[bytes], bytes] | None = None
        self.filled: dict[str, list[Filled]] = {}
        #: The tools of which more is filled beside the command.
        self.fills_beside: set[str] = set()
        #: When the command ended, in seconds since the epoch; None if it has not, or somebody else ran it.
        self.ended: float | None = None
        #: How the store failed us: it is left alone for the rest of the job.
        self.store_failure = ""
        #: Works beside the command.
        self.helper: bounded.Helper | None = None

    # -- what it is ---------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What jobs that will use the same entries have in common."""
        known = ci.provenance(self.env)
        where = [known.get("repository"), self.env.get("GITHUB_WORKFLOW"), known.get("job")]
        parts = [*where, *self.argv] if known else [identity.working_directory(), *self.argv]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    @property
    def retries(self) -> int:
        """Of the whole command, which may have effects: only if somebody asked."""
        settings = self.settings
        return int(settings.retries) if settings.origin("retries") != "default" else 0

    @property
    def measures(self) -> bool:
        """A performance job: what it picks must come from its own measurements."""
        return bool(self.settings.frozen or self.settings.require_warm)

    def tuning(self, tool: Row) -> str:
        """`on`: the tool is told to keep autotuning results, or the user why not; `off`: as in a fresh checkout."""
        name = f"{tool.name}-autotune"
        return str(self.settings.value(name)) if name in BY_NAME else ""

    def takes(self, tool: Row, fingerprint: str) -> bool:
        """Whether entries of this fingerprint are this job's business at all, to fill and to publish."""
        return not fingerprint.startswith(TUNED) or not (self.measures or self.tuning(tool) == "off")

    def may_publish(self, status: int) -> policy.Decision:
        """Whether what is new may be given to others, if the command ends like this."""
        settings, frozen = self.settings, self.settings.frozen
        return policy.may_publish(settings.publish, self.event, self.scopes.write, frozen=frozen, status=status)

    def open_room(self) -> Room:
        """The room, for steps that only run if there is one."""
        assert self.room is not None
        return self.room

    def cache(self, tool: Row) -> CacheDir:
        here = self.open_room()
        path = here.cache_dir(tool.name)
        return CacheDir(path, ours=True, seen_as=here.seen(path), below=here.inner)

    def cut_off(self) -> list[Span]:
        """When somebody was writing who was killed: only what the tool itself calls whole is taken of that time."""
        return [*self._cut_off(), *(self.shared.cut_off if self.shared else ())]

    # -- what becomes of it -------------------------------------------------------------------------------------

    def set(self, variables: Mapping[str, str]) -> None:
        self.env |= variables
        self.report.env |= variables

    def enter(self, room: Room, *, ours: bool = True) -> None:
        """`ours`: nobody has filled it before us."""
        self.room, self.fills_room = room, ours
        self.report.room = room.path

    def let_go_of_room(self) -> None:
        """It is somebody else's to harvest and to remove."""
        self.room = None

    def share(self, part: Shared) -> None:
        self.shared = part

    def manage(self, managed: list[Row], cold: list[Row], through: list[str]) -> None:
        self.managed, self.cold, self.through = managed, cold, through

    def sign_with(self, sign: Callable[[bytes], bytes]) -> None:
        self.sign = sign

    def lose_store(self, why: str) -> None:
        self.store_failure = why

    def take(self, tool: str, entries: Sequence[Filled], *, later: bool) -> list[Filled]:
        """These lie in the room now; returns all that do. `later`: more come beside the command."""
        if later:
            self.fills_beside.add(tool)
        self.filled[tool] = [*self.filled.get(tool, ()), *entries]
        return self.filled[tool]

    def forget(self, tool: str) -> None:
        """Nothing that was filled is there any more."""
        self.filled.pop(tool, None)

    def command_ended(self, status: int, now: float, seconds: float) -> None:
        self.ended, self.report.status, self.report.run_seconds = now, status, seconds

    def work_beside(self, work: Callable[[Callable[[float], bool]], Any], memory: int) -> None:
        self.helper = bounded.Helper(work, memory)

    def stop_beside(self) -> Any:
        """The helper's answer; None if there is no helper. Raises `OndolError`."""
        helper, self.helper = self.helper, None
        return helper.stop(self.settings.store_timeout) if helper else None

    def keep(self) -> dict[str, Any]:
        """What another process of this job needs to go on: another rank, `ondol close`."""
        return {
            "store": self.store_path,
            "store_failure": self.store_failure,
            "managed": [row.name for row in self.managed],
            "cold": [row.name for row in self.cold],
            "filled": self.filled,
            "tools": self.report.tools,
        }

    def go_on(self, kept: Mapping[str, Any]) -> None:
        self.store_path = self.report.store = kept["store"]
        self.store_failure = kept["store_failure"]
        self.managed = [row for name in kept["managed"] for row in registry.choose([name])]
        self.cold = [row for name in kept["cold"] for row in registry.choose([name])]
        self.filled, self.report.tools = kept["filled"], kept["tools"]

    # -- what is shown of it ------------------------------------------------------------------------------------

    def progress(self, what: str) -> bounded.Progress:
        return lambda done, total: self.show_progress(what, done, total)

    def no_more_progress(self) -> None:
        """Also for work that was cut off: nothing of ours may stand on the terminal when the command starts."""
        self.show_progress("", 1, 1)


def _tools(settings: Settings) -> tuple[set[str], list[Row]]:
    """(the names that the user gave, the tools)"""
    names = settings.tools
    if names == ["none"]:
        return set(), []
    try:
        rows = {row.name: row for row in registry.choose(names)}
    except UsageError as error:
        if settings.origin("tools") in ("command line", BY_NAME["tools"].variable):
            raise
        settings.warnings.append(f"tools from {settings.origin('tools')} ignored: {error.line()}")
        names = BY_NAME["tools"].default
        rows = {row.name: row for row in registry.choose(names)}
    if registry.AUTO in names:
        rows = {row.name: row for row in registry.switched_on(settings.value)} | rows
    return {name for name in names if name != registry.AUTO and name in rows}, list(rows.values())


def read_json(path: str) -> Any:
    try:
        return json.loads(files.read_regular(path, _LARGEST_JSON)[0])
    except (OSError, ValueError, RecursionError):
        return None
