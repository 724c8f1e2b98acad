"""What happened in a job, as plain values: the one source of the summary, the step summary and the JSON file."""

from typing import Any, NamedTuple


class ToolReport(NamedTuple):
    """One tool's part of a job."""

    name: str
    managed: bool = True
    filled: int = 0
    filled_bytes: int = 0
    #: Entries left in the store because of `fill-max`.
    left_out: int = 0
    #: None where the file system keeps no access times.
    used: int | None = None
    #: Filled, and made again by the tool all the same.
    remade: int = 0
    new: int = 0
    #: Names of what was compiled in this job.
    new_titles: tuple[str, ...] = ()
    published: int = 0
    published_bytes: int = 0
    #: How many of them while the command ran.
    beside: int = 0
    #: New here, and already in the store by the time we came.
    already_there: int = 0
    #: kind → count of what was left behind on purpose.
    refused: dict[str, int] = {}
    #: Packs that were not what they claimed; each was a miss.
    bad_packs: int = 0
    bad_reasons: tuple[str, ...] = ()
    #: why → count of packs that are whole and were passed over: not signed as the store demands, revoked.
    untrusted: dict[str, int] = {}
    #: Every pack that was filled: entry, owner, digest, signer, and whether it was used (None where nobody can tell).
    packs: tuple[dict[str, Any], ...] = ()
    seconds_saved: float = 0.0
    #: What the new entries cost to make, as far as their files tell.
    seconds_new: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether there is anything to tell about it."""
        return self.managed and bool(
            self.filled or self.new or self.refused or self.bad_packs or self.untrusted or self.left_out
        )


class JobReport:
    """Filled in as the job goes on, read once at its end."""

    def __init__(self, command: list[str], store: str, scope: str) -> None:
        self.command = command
        self.store = store
        self.scope = scope
        self.status = 0
        self.room = ""
        self.room_kept = False
        self.tools: dict[str, ToolReport] = {}
        #: Variables that the command got from us.
        self.env: dict[str, str] = {}
        self.publish_decision = ""
        self.may_publish = False
        #: Cache trouble: shown once each; with --strict they fail the job.
        self.warnings: list[str] = []
        #: Worth knowing, not trouble.
        self.remarks: list[str] = []
        #: Whose entries were not read, why, and how many.
        self.passed_over: list[dict[str, Any]] = []
        self.fill_seconds = 0.0
        self.run_seconds = 0.0
        self.publish_seconds = 0.0

    def update(self, name: str, **changes: Any) -> None:
        known = self.tools.get(name)
        self.tools[name] = known._replace(**changes) if known else ToolReport(name, **changes)

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def busy(self) -> list[ToolReport]:
        return [tool for tool in self.tools.values() if tool.busy]

    def compiled(self) -> list[str]:
        """Names of everything that was compiled although a warm job should not have to."""
        return [title for tool in self.tools.values() for title in tool.new_titles]

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": "ondol-run/1",
            "command": self.command,
            "status": self.status,
            "store": self.store,
            "scope": self.scope,
            "room": self.room if self.room_kept else "",
            "env": self.env,
            "publish": self.may_publish,
            "publish_decision": self.publish_decision,
            "tools": {name: tool._asdict() for name, tool in self.tools.items()},
            "warnings": self.warnings,
            "remarks": self.remarks,
            "passed_over": self.passed_over,
            "seconds": {
                "fill": round(self.fill_seconds, 4),
                "run": round(self.run_seconds, 4),
                "publish": round(self.publish_seconds, 4),
            },
        }
