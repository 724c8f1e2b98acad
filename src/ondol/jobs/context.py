"""What the steps of one job share: facts that were found out at its start, and what each step leaves for the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ondol.config import Settings
from ondol.events import JobReport
from ondol.host import bounded, identity
from ondol.jobs.store_location import location
from ondol.light import Any
from ondol.room.room import Room
from ondol.tools.api import CacheDir
from ondol.tools.table import Row
from ondol.trust import ci, policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ondol.jobs.sharing import Shared
    from ondol.room.fill import Filled

#: (what is being done, done, total)
Progress = Callable[[str, int, int], None]


class Context:
    def __init__(self, argv: list[str], settings: Settings, env: Mapping[str, str], progress: Progress) -> None:
        self.settings = settings
        #: The command's environment, as far as it is decided.
        self.env = dict(env)
        self.host = identity.this_host()
        self.event = ci.read_event(env, _read_json)
        self.scopes = policy.scopes(settings.scope, self.event)
        self.store_path = location(settings)
        self.report = JobReport(argv, self.store_path, self.scopes.write)
        self.room: Room | None = None
        #: For a room that others enter, the path at which they will see it (empty: its own); None for the job's own.
        self.at: str | None = None
        #: Our part in it, if the ranks of a job step share it.
        self.shared: Shared | None = None
        self.managed: list[Row] = []
        self.filled: dict[str, list[Filled]] = {}
        #: False once the store has failed us: it is left alone for the rest of the job.
        self.store_works = True
        self._progress = progress

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

    def no_more_progress(self) -> None:
        """Also for work that was cut off: nothing of ours may stand on the terminal when the command starts."""
        self._progress("", 1, 1)


def _read_json(path: str) -> Any:
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None
