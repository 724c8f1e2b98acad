"""Every option of every command, once. Flags, `ONDOL_*` variables, keys of files, `ondol config`, `--ondol-…` of the
pytest plugin, completion, "did you mean" and the reference pages all follow from this table.

It also says which files are believed about what: a pull request edits the files of its project, so these say nothing
about trust. Imported by every pytest that has Ondol installed, so it imports next to nothing.
"""

from typing import Any, NamedTuple

from ondol import units

PREFIX = "ONDOL_"
#: Whose file it is. A project's, on CI, where a pull request can have edited it; one's own checkout's, off CI; and
#: the user's or the site's.
PROJECT, OWN, OUTSIDE = 0, 1, 2
#: No flag and no variable: these stand in a pipeline's own text, which the jobs in question write.
FILES_ONLY = 3
#: No variable and no key: what somebody wants of one command once, such as `ondol doctor --fix`.
TYPED = 4
#: The words of a switch; `true` and `false` mean on and off, and the flag alone means on.
SWITCH = "auto|on|off"


class Option(NamedTuple):
    #: The commands that take it, with subcommands as `store:gc`. `pytest`: also an option `--ondol-NAME` of the
    #: plugin; `ini`: also a key `ondol_NAME` of pytest's ini file.
    commands: str
    name: str
    #: A key of `config.KINDS`.
    kind: str
    default: Any
    #: What stands for the value in help; for a choice the words themselves.
    metavar: str
    help: str
    #: The least file that is believed. PROJECT is convenience. All above it concern trust: on their word something is
    #: executed, written or believed.
    least: int = PROJECT
    #: What any file may say all the same, because it only makes Ondol do less.
    tight: tuple[Any, ...] = ()
    #: The table of the file in which it stands, for what concerns one tool: `[tool.ondol.triton]`.
    table: str = ""

    @property
    def sort(self) -> str:
        return "trust" if self.least else "convenience"

    @property
    def key(self) -> str:
        """How it is written in the file."""
        return f"{self.table}.{self.name.removeprefix(self.table + '-')}" if self.table else self.name

    @property
    def flag(self) -> str:
        """How it is typed. What only one command takes is not called after it once more: `ondol guard --cache`."""
        return f"--{self.name.removeprefix(f'{self.commands}-')}"

    @property
    def variable(self) -> str:
        return PREFIX + self.attribute.upper()

    @property
    def attribute(self) -> str:
        return self.name.replace("-", "_")

    @property
    def in_pytest(self) -> str:
        """Where pytest keeps its value, and its key in pytest's ini file."""
        return f"ondol_{self.attribute}"

    @property
    def short(self) -> str:
        return f"-{self.name[0]}" if self.name in ("quiet", "verbose") else ""

    def taken_by(self, command: str) -> bool:
        return command in self.commands.split()

    def show(self, value: Any) -> str:
        """A value as somebody could type it."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list):
            return ",".join(map(str, value))
        if self.kind == "size" and value is not None:
            return units.size(value)
        if self.kind == "duration" and value is not None:
            return units.duration(value)
        return "" if value is None else str(value)

    def about(self) -> str:
        """What help says."""
        shown = "" if self.kind == "flag" or self.default is None else self.show(self.default)
        return f"{self.help} (default: {shown})" if shown and "(default" not in self.help else self.help


_JOB = "run open config"
_LOOK = "store:ls store:show store:verify store:stats store:gc store:revoke store:adopt"
_RULES = "store:writers store:require-signature"
_TEST = "test config pytest ini"
#: What `ondol test` must know before there is a pytest, and what is different in every run.
_BEFORE = "test config pytest"
_PAGE = "write a page here that needs nothing else: timeline, failures by cause, devices, caches"
_AGAINST = "on that page, show new failures and fixed tests since this run: a journal, latest, or a run's name"
_TUNING = "share autotuning results that the program keeps"

# fmt: off
OPTIONS: tuple[Option, ...] = (
    # ------------------------------------------------------------------ the caches of a job
    Option(f"{_JOB} test key doctor history report {_LOOK} {_RULES}", "store", "path", "", "PATH",
           "the store: a directory (default: one under your cache directory)", OWN),
    Option(f"{_JOB} test", "tools", "names", ["auto"], "NAMES",
           "which tools' caches to manage; naming one overrides its own variables; `auto,-NAME` leaves one alone"),
    Option(f"{_JOB} test store:adopt", "scope", "name", "auto", "NAME",
           "scope to publish into; `main` and this one are read", OWN),
    Option(f"{_JOB} test close", "publish", "choice", "auto", "never|on-success|auto",
           "publish what is new: never, if the command succeeds, or however it ends", OWN, ("never",)),
    Option(f"{_JOB} test gc doctor", "room-dir", "path", "", "DIR",
           "where to make the private room (default: node-local temporary space)", OWN),
    Option(_JOB, "share", "text", "auto", "KEY",
           "one room for a step's ranks on a node: auto, off, a name", OWN, ("off",)),
    Option(f"{_JOB} test close", "keep-room", "flag", False, "", "leave the room behind and say where it is", OWN),
    Option(f"{_JOB} close", "strict", "flag", False, "",
           "fail (status 123) if there was any cache trouble", OWN, (True,)),
    Option(f"{_JOB} test close", "require-warm", "flag", False, "",
           "fail (status 122), with a list, if anything was compiled", OWN, (True,)),
    Option(f"{_JOB} test", "frozen", "flag", False, "",
           "fill, and publish nothing: for performance jobs", OWN, (True,)),
    Option(_JOB, "fill-max", "size", 256 << 20, "SIZE",
           "how many packed bytes to fill, the most recently useful first"),
    Option(f"{_JOB} close", "store-timeout", "duration", 120.0, "TIME",
           "give up on a slow store after this long, and run without it"),
    Option(f"{_JOB} test close doctor history report {_LOOK}", "trust", "uids", [], "UIDS",
           "UIDs whose files in a store are trusted, as root's are", OUTSIDE),
    Option("", "trusted-jobs", "list", [], "", "jobs, projects and forks whose branches may write `main`", FILES_ONLY),
    Option(f"{_JOB} test close store:adopt", "sign-key", "text", "", "KEY",
           "sign what is published: fd:N, env:NAME, or (for close) a file", OUTSIDE),
    Option(f"{_JOB} guard test pytest ini", "retries", "count", 1, "N",
           "further attempts after a fault that is not the code's own: a known cache fault; with `ondol test`, what "
           "--retry-on says (default: 1; `ondol run`: 0, because a command may have effects)"),
    Option(f"{_JOB} test", "triton-autotune", "switch", "auto", SWITCH,
           f"{_TUNING} (on: tell Triton to keep it)", table="triton"),
    Option(f"{_JOB} test", "tilelang-autotune", "switch", "auto", SWITCH, _TUNING, table="tilelang"),
    Option(f"{_JOB} test", "helion-autotune", "switch", "auto", SWITCH, _TUNING, table="helion"),
    Option(_JOB, "ccache-shared", "path", "", "DIR",
           "compiled objects behind each job's own ccache", OWN, table="ccache"),
    Option("run close", "json", "path", "", "FILE", "write what happened to this file", OUTSIDE),
    Option(f"{_JOB} close guard", "quiet", "flag", False, "", "say nothing but warnings"),
    Option(f"{_JOB} close guard", "verbose", "flag", False, "",
           "say more: what was set, filled, refused, locked, and why"),
    # ------------------------------------------------------------------ a command with a shared cache
    Option("guard", "guard-cache", "path", "", "DIR",
           "the cache (default: the one that uv or pip names)", OUTSIDE, table="guard"),
    Option("guard", "guard-wait", "duration", 900.0, "TIME", "go on without the lock after this long", table="guard"),
    Option("guard", "guard-heal", "choice", "auto", "auto|off|whole",
           "auto: set bad entries aside; off: touch nothing, watch nothing; whole: all of them, if none is found bad",
           OUTSIDE, ("off",), table="guard"),
    Option("guard", "guard-verify", "flag", False, "", "look for bad entries before the command, too", table="guard"),
    Option("guard", "guard-shared", "flag", False, "",
           "run beside other shared guards; exclusive only to heal", table="guard"),
    Option("guard", "guard-json", "path", "", "FILE", "write what happened to this file", OUTSIDE, table="guard"),
    # ------------------------------------------------------------------ the tests of a run
    Option(_TEST, "devices", "text", "", "SPEC",
           "what to run on: auto, cuda, rocm, xpu, ascend, 0-3,6, cpu:4, sim:2, none (default: auto)"),
    Option(_TEST, "runtime", "list", [], "NAMES", "run only tasks and items of this runtime; may be repeated"),
    Option(_TEST, "workers-per-device", "positive", 1, "N", "workers on each device"),
    Option(_BEFORE, "engine", "text", "local", "ENGINE",
           "where the nodes come from: local, slurm, ssh:HOST,HOST, docker:IMAGE, podman:IMAGE, apptainer:IMAGE, "
           "enroot:IMAGE, kubectl:POD", OWN),
    Option(_BEFORE, "launch", "text", "", "TEMPLATE",
           "an engine of your own: the command that starts {agent} on a node and carries its standard streams; also "
           "{node}, {device}, {directory}, {gpus}", OWN),
    Option(_BEFORE, "nodes", "text", "", "NAMES",
           "for --launch and containers: the names for {node}, or how many (default: 1)", OWN),
    Option(_BEFORE, "slurm", "text", "", "ARGUMENTS",
           "ask for this allocation (arguments of salloc; without it: use the one we are in)", OWN),
    Option(_BEFORE, "srun", "text", "", "ARGUMENTS",
           "more arguments for the srun of each node, such as --container-image=IMAGE", OWN),
    Option(_BEFORE, "agent", "text", "", "COMMAND",
           "how Ondol is called on a node: 'python3 /ondol.pyz' … (default: as here; in containers python3 -m ondol)",
           OWN),
    Option(_BEFORE, "node-dir", "text", "", "DIR", "where the checkout is on the nodes (default: as here)", OWN),
    Option(_TEST, "engine-timeout", "duration", 3600.0, "TIME",
           "how long to wait for a node; never counts as a test's time; 0 = for ever"),
    Option(_TEST, "engine-silence", "duration", 120.0, "TIME",
           "end a node, or the agent of this machine, that does not answer for this long; 0 = never"),
    Option(_TEST, "engine-margin", "duration", 60.0, "TIME",
           "hand out no more items this long before the allocation's time limit"),
    Option(_TEST, "device-env", "list", [], "NAMES", "one more variable that selects devices; may be repeated"),
    Option(_TEST, "timeout", "duration", 1800.0, "TIME",
           "deadline of one item, without its teardown; waiting for a device never counts; 0 = none"),
    Option(_TEST, "teardown-timeout", "duration", 300.0, "TIME", "deadline of an item's teardown"),
    Option(_TEST, "startup-timeout", "duration", 120.0, "TIME", "deadline of a worker's start"),
    Option(_BEFORE, "collect-timeout", "duration", 600.0, "TIME",
           "`ondol test` only: end a collection that makes no progress for this long"),
    Option(_TEST, "collect-first", "flag", False, "",
           "start no node and no worker before the tests are collected here: for suites whose collection writes files "
           "that it then reads"),
    Option(_TEST, "silence", "duration", 0.0, "TIME",
           "end an item that neither prints nor progresses for this long; 0 = never"),
    Option(_TEST, "session-timeout", "duration", 0.0, "TIME",
           "deadline of the whole run: stop, report, exit 124; 0 = none"),
    Option(_TEST, "grace", "duration", 3.0, "TIME", "time between SIGTERM and SIGKILL"),
    Option(_TEST, "reap-timeout", "duration", 60.0, "TIME",
           "a killed process that is not gone by then makes its device lost"),
    Option(_TEST, "native-stacks", "duration", 5.0, "TIME",
           "time for py-spy or gdb to show native stacks of a hang; 0 = do not ask"),
    Option(_TEST, "retry-on", "text", "cache,crashed,device", "CAUSES",
           "causes that are tried again, on another device where there is one: crashed, device, cache, timeout, "
           "failed"),
    Option(_TEST, "judge", "choice", "on", "on|off",
           "judge a failure in a warm worker once more in a fresh one; stops after 20 confirmed failures"),
    Option(_TEST, "flaky", "choice", "pass", "pass|fail", "what a flaky item counts as"),
    Option(_TEST, "isolate", "choice", "worker", "worker|item",
           "what gets a process of its own: each worker, or each item"),
    Option(_TEST, "hygiene", "choice", "report", "off|report|recycle|fail",
           "what to do about what items leave behind; an item with a process of its own is looked at only for `fail`"),
    Option(_TEST, "recycle-after", "count", 0, "N", "replace a worker after this many items; 0 = never"),
    Option(_TEST, "probe", "text", "", "COMMAND",
           "a command that says whether the device of $ONDOL_DEVICE is healthy (default: a memory test on CUDA)", OWN),
    Option(_TEST, "probe-timeout", "duration", 30.0, "TIME", "a health probe that takes longer has failed"),
    Option(_TEST, "start", "choice", "auto", "auto|fork|spawn", "how workers are made"),
    Option(_TEST, "device-facts", "choice", "auto", "auto|on|off",
           "answer questions about devices from a helper process while tests are collected, so that workers can be "
           "forked; auto: where there are devices"),
    Option(_BEFORE, "journal", "path", "", "FILE",
           "where the record of the run goes (default: a file in $XDG_STATE_HOME/ondol/journals)", OUTSIDE),
    Option("test config", "html", "path", "", "FILE", _PAGE, OUTSIDE),
    Option("test config", "against", "text", "", "RUN", _AGAINST, OWN),
    Option("test config", "perfetto", "path", "", "FILE",
           "write a trace of the run for ui.perfetto.dev or chrome://tracing here", OUTSIDE),
    Option(_TEST, "rebuild", "choice", "stale", "stale|all",
           "what `task.built` of a task file builds again: what was built from other inputs, or everything"),
    Option(_TEST, "log-dir", "path", "", "DIR", "a file for every attempt goes here", OUTSIDE),
    Option(_TEST, "estimates", "path", "", "FILE",
           "where measured durations are kept (default: pytest's cache)", OUTSIDE),
    Option(f"{_BEFORE} history report", "history", "path", "", "DIR",
           "where the journals of past runs are kept, perhaps by many machines (default: a directory in "
           "$XDG_STATE_HOME/ondol)", OWN),
    Option(_BEFORE, "rerun", "text", "", "RUN",
           "run what failed, was not run or was flaky in this run: latest, a journal, a name from `ondol history`",
           OWN),
    Option(_BEFORE, "shard", "text", "", "N/M",
           "run the second of five parts: 2/5; balanced by the durations in a shared --history, else by the files' "
           "items", OWN),
    Option(_BEFORE, "known", "flag", True, "",
           "obey ondol-known.toml: what is known to fail until a date does not make the run fail (default: true)"),
    Option(_TEST, "live", "choice", "auto", "auto|off", "one line per device on a terminal"),
    # ------------------------------------------------------------------ what one command is asked for once
    Option(f"config gc explain doctor history key tools store:init {_LOOK} {_RULES}", "json", "flag", False, "",
           "print JSON", TYPED),
    Option("gc doctor store:gc store:adopt", "dry-run", "flag", False, "",
           "say what would be done, and change nothing", TYPED),
    Option("explain doctor store:revoke", "list", "flag", False, "", "list all of them", TYPED),
    Option("open", "format", "choice", "env", "env|docker|podman|apptainer|enroot|pyxis|slurm|github|json",
           "what to print (default: env, for sh and bash)", TYPED),
    Option("open", "at", "text", None, "PATH",
           "the room's path inside the container (default: /ondol/room)", TYPED),
    Option("open", "uid", "count", None, "N", "UID of the job's user, as it is numbered outside the container", TYPED),
    Option("open", "room-file", "text", "", "FILE", "write the room's path here, for `ondol close`", TYPED),
    Option("close", "status", "text", None, "N",
           "how the job ended: a number, or your CI system's word for it (success, failure, cancelled …)", TYPED),
    Option("close", "format", "choice", None, "env|github",
           "also undo what `ondol open --format` set, for what comes after", TYPED),
    Option("gc", "older-than", "duration", None, "TIME", "remove open rooms after this long (default: 7d)", TYPED),
    Option("report", "junit", "text", "", "FILE", "write JUnit XML here ('-' = standard output)", TYPED),
    Option("report", "json", "text", "", "FILE", "write JSON here", TYPED),
    Option("report", "md", "text", "", "FILE", "write Markdown here (the default, on standard output)", TYPED),
    Option("report", "compare", "pair", None, "A B",
           "what is different in the second run; status 1 if something fails that did not fail before", TYPED),
    Option("report", "html", "text", "", "FILE", _PAGE, TYPED),
    Option("report", "against", "text", "", "RUN", _AGAINST, TYPED),
    Option("report", "perfetto", "text", "", "FILE",
           "write a trace for ui.perfetto.dev or chrome://tracing here", TYPED),
    Option("history", "most", "positive", 20, "N", "show at most this many", TYPED),
    Option("guard", "selftest", "flag", False, "", "start processes that compete for the lock, and report", TYPED),
    Option("explain", "all", "flag", False, "", "name every test", TYPED),
    Option("doctor", "fix", "flag", False, "", "mend what is safe to mend: the caller's own files only", TYPED),
    Option("doctor", "strict", "flag", False, "", "status 1 for warnings too", TYPED),
    Option("doctor", "only", "list", [], "NAMES", "carry out these checks only", TYPED),
    Option("doctor", "skip", "list", [], "NAMES", "leave these checks out", TYPED),
    Option("doctor", "limit", "positive", 200_000, "N", "files and directories to look at, for each PATH", TYPED),
    Option("doctor", "walk-time", "duration", 60.0, "TIME", "how long to walk through each PATH", TYPED),
    Option("doctor", "timeout", "duration", None, "TIME", "give up on a check that takes longer than this", TYPED),
    Option("key", "for", "choice", "user", "user|site|store",
           "who trusts the key: you, everybody on this machine, or all readers of the store", TYPED),
    Option("key", "scopes", "text", "*", "SCOPES", "where its signatures count (default: everywhere)", TYPED),
    Option("key", "comment", "text", "", "TEXT", "what people call it", TYPED),
    Option("node", "check", "flag", False, "", "say which Ondol and pytest are here, and end", TYPED),
    Option("store:init", "writers", "text", "", "WHO[:SCOPE],…",
           "who may publish for everybody: UIDs, users, @GROUPs, any; with :SCOPE only there (3001:pr-*)", TYPED),
    Option("store:init", "require-signature", "text", "", "SCOPES", "scopes whose entries must be signed", TYPED),
    Option("store:require-signature", "off", "flag", False, "", "stop demanding signatures in these scopes", TYPED),
    Option("store:revoke", "run", "text", "", "RUN", "what this run of a CI system made", TYPED),
    Option("store:revoke", "commit", "text", "", "COMMIT", "what was made of this commit", TYPED),
    Option("store:revoke", "owner", "text", "", "UID", "what this user made", TYPED),
    Option("store:revoke", "scope", "text", "", "SCOPE", "what is in this scope", TYPED),
    Option("store:revoke", "key", "text", "", "KEY", "what this key has signed", TYPED),
    Option("store:revoke", "entry", "text", "", "ENTRY", "this entry", TYPED),
    Option("store:revoke", "undo", "text", "", "NAME", "undo this revocation: a name from --list", TYPED),
    Option("store:revoke", "before", "text", None, "TIME",
           "only what was published before: 2026-11-15T08:00, or 2d (ago)", TYPED),
    Option("store:revoke", "why", "text", "", "TEXT", "the reason, which --list shows", TYPED),
    Option("store:ls", "tool", "text", "", "NAME", "only this tool's", TYPED),
    Option("store:ls", "in-scope", "text", "", "NAME", "only this scope's", TYPED),
    Option("store:verify", "keep", "flag", False, "", "report bad packs and leave them where they are", TYPED),
    Option("store:stats", "prometheus", "text", "", "FILE",
           "write the numbers there, whole, instead of showing them", TYPED),
    Option("store:stats", "html", "text", "", "FILE", "write a page there, which needs no network", TYPED),
    Option("store:gc", "max-size", "size", None, "SIZE", "the store's packs together are at most this large", TYPED),
    Option("store:gc", "max-age", "duration", None, "TIME", "remove what was not useful for this long", TYPED),
    Option("store:gc", "min-free", "size", None, "SIZE", "leave at least this much free on its file system", TYPED),
    Option("store:gc", "pr-age", "duration", 14 * 86400.0, "TIME", "the same for pull requests' entries", TYPED),
    Option("store:adopt", "tool", "text", "triton", "NAME", "the tool that wrote the cache", TYPED),
)
# fmt: on
#: In help, a new group begins with these options.
GROUPS = {
    "devices": "where tests run",
    "timeout": "time limits",
    "retry-on": "verdicts and workers",
    "journal": "reports and past runs",
}
#: What has a value in every command: settings, by name.
BY_NAME = {option.name: option for option in OPTIONS if option.least != TYPED}
#: Options `--ondol-NAME` of pytest.
IN_PYTEST = tuple(option for option in OPTIONS if option.taken_by("pytest"))


def of(command: str) -> list[Option]:
    """What this command takes: `run`, `store gc`."""
    return [option for option in OPTIONS if option.taken_by(command.replace(" ", ":"))]
