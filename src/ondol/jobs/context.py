"""What the steps of one job share: facts that were found out at its start, and what each step leaves for the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ondol.config import BY_NAME, Settings
from ondol.events import JobReport
from ondol.host import bounded, files, identity
from ondol.jobs.store_location import location
from ondol.light import Any
from ondol.room.room import Room
from ondol.tools.api import TUNED, CacheDir
from ondol.tools.table import Row
from ondol.trust import ci, policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ondol.jobs.sharing import Shared
    from ondol.room.fill import Filled
    from ondol.room.harvest import Span

#: GitHub's limit for the details of an event, and some more.
_LARGEST_JSON = 32 << 20
#: (what is being done, done, total)
Progress = Callable[[str, int, int], None]


class Context:
    def __init__(
        self,
        argv: list[str],
        settings: Settings,
        env: Mapping[str, str],
        progress: Progress,
        event: policy.Event | None = None,
    ) -> None:
        """`event`: what the CI system said where the job was asked for, if that was not here."""
        #: What will be executed, as the user calls it.
        self.program = argv[0]
        self.settings = settings
        #: The command's environment, as far as it is decided.
        self.env = dict(env)
        self.host = identity.this_host()
        self.event = event or ci.read_event(env, read_json, settings.trusted_jobs)
        self.scopes = policy.scopes(settings.scope, self.event)
        self.store_path = location(settings)
        self.report = JobReport(argv, self.store_path, self.scopes.write)
        self.report.warnings += settings.warnings
        self.report.remarks += settings.remarks
        if self.scopes.passed_over and settings.publish != "never":
            self.report.remarks.append(self.scopes.passed_over)
        self.room: Room | None = None
        #: For a room that others enter, the path at which they will see it (empty: its own); None for the job's own.
        self.at: str | None = None
        #: Whether it is we who fill it, and who publish while the command runs; else another rank does.
        self.fills_room = True
        #: Who publishes while the command runs.
        self.beside: bounded.Helper | None = None
        #: Our part in it, if the ranks of a job step share it.
        self.shared: Shared | None = None
        #: Somebody may still be in it: it is left to a later job, which looks.
        self.room_in_use = False
        self.managed: list[Row] = []
        #: Tools with a private cache that is neither filled nor published: their fixed path is not possible here.
        self.cold: list[Row] = []
        #: Words that start the command, if it cannot simply be started (`host/fixed_place`).
        self.through: list[str] = []
        #: Signs what is published, if there is a key.
        self.sign: Callable[[bytes], bytes] | None = None
        self.filled: dict[str, list[Filled]] = {}
        #: Whether the command waits until all of it is filled; and the tools of which more is filled beside it.
        self.fills_all = False
        self.fills_beside: set[str] = set()
        #: When somebody was writing who was killed, as far as anybody but the command's own end tells (`room/harvest`).
        self.cut_off: Callable[[], list[Span]] = list
        #: When the command ended, in seconds since the epoch; None if somebody else ran it.
        self.ended: float | None = None
        #: How the store failed us: it is left alone for the rest of the job.
        self.store_failure = ""
        self._progress = progress

    @property
    def name(self) -> str:
        """What jobs that will use the same entries have in common."""
        import hashlib

        known = ci.provenance(self.env)
        where = [known.get("repository"), self.env.get("GITHUB_WORKFLOW"), known.get("job")]
        parts = [*where, *self.report.command] if known else [identity.working_directory(), *self.report.command]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    @property
    def measures(self) -> bool:
        """A performance job: what it picks must come from its own measurements."""
        return bool(self.settings.frozen or self.settings.require_warm)

    def shares_tuning(self, tool: Row) -> bool:
        """Whether this job takes and gives the tool's autotuning results. Off: the tool is as in a fresh checkout."""
        name = f"{tool.name}-autotune"
        return not self.measures and (name not in BY_NAME or self.settings.value(name) != "off")

    def asked_for_tuning(self, tool: Row) -> bool:
        """Whether the user switched it on: the tool is told to keep results, or the user why not."""
        name = f"{tool.name}-autotune"
        return name in BY_NAME and self.settings.value(name) == "on"

    def takes(self, tool: Row, fingerprint: str) -> bool:
        """Whether entries of this fingerprint are this job's business at all, to fill and to publish."""
        return not fingerprint.startswith(TUNED) or self.shares_tuning(tool)

    def may_publish(self, status: int) -> policy.Decision:
        """Whether what is new may be given to others, if the command ends like this."""
        settings, frozen = self.settings, self.settings.frozen
        return policy.may_publish(settings.publish, self.event, self.scopes.write, frozen=frozen, status=status)

    def set(self, variables: Mapping[str, str]) -> None:
        self.env |= variables
        self.report.env |= variables

    def open_room(self) -> Room:
        """The room, for steps that only run if there is one."""
        assert self.room is not None
        return self.room

    def cache(self, tool: Row) -> CacheDir:
        here = self.open_room()
        path = here.cache_dir(tool.name)
        return CacheDir(path, ours=True, seen_as=here.seen(path), below=here.inner)

    def progress(self, what: str) -> bounded.Progress:
        return lambda done, total: self._progress(what, done, total)

    def healing_progress(self, what: str, done: int, total: int) -> None:
        self._progress(what, done, total)

    def no_more_progress(self) -> None:
        """Also for work that was cut off: nothing of ours may stand on the terminal when the command starts."""
        self._progress("", 1, 1)


def read_json(path: str) -> Any:
    import json

    try:
        return json.loads(files.read_regular(path, _LARGEST_JSON)[0])
    except (OSError, ValueError, RecursionError):
        return None
