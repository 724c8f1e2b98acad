"""A pytest suite in a directory of its own, run for real in a process of its own, by plain pytest or by Ondol."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from handmade import present
from ondol.fleet.record import RunRecord, load
from ondol.host import proctree
from warm_pytest import EARLY, WarmPytest, early

RECORDER = """
import json, os

class Recorder:
    def __init__(self):
        self.pid = os.getpid()
        self.seen = []

    def pytest_runtest_logreport(self, report):
        if os.getpid() == self.pid:
            kind = "xfail" if hasattr(report, "wasxfail") else ""
            self.seen.append([report.nodeid, report.when, report.outcome, kind])

    def pytest_warning_recorded(self, warning_message, when, nodeid):
        if os.getpid() == self.pid and when == "runtest":
            self.seen.append([nodeid, "warning", str(warning_message.message), warning_message.category.__name__])

    def pytest_sessionfinish(self, session, exitstatus):
        if os.getpid() == self.pid:
            with open(os.environ["RECORD"], "w") as file:
                json.dump({"seen": self.seen, "status": int(exitstatus)}, file)

def pytest_configure(config):
    config.pluginmanager.register(Recorder())
"""


@dataclass
class Result:
    """One run of a suite."""

    status: int
    output: str
    seen: list[list[str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    journal: Path | None = None

    @property
    def outcomes(self) -> list[tuple[str, ...]]:
        """Every report of every item, in an order that does not depend on who ran it."""
        return sorted(tuple(entry) for entry in self.seen)

    @property
    def selected(self) -> list[str]:
        """The items that were reported on, in the order of their first report."""
        return list(dict.fromkeys(entry[0] for entry in self.seen))

    @property
    def summary(self) -> str:
        """The counts of pytest's last line."""
        last = [line for line in self.output.splitlines() if re.search(r" in [\d.]+s", line)][-1]
        return re.sub(r" in [\d.]+s.*", "", last).strip("= ")

    @property
    def record(self) -> RunRecord:
        assert self.journal is not None
        return load(self.journal)

    @property
    def verdicts(self) -> dict[str, str]:
        """Name of the test → verdict."""
        return {item.nodeid.split("::", 1)[-1]: item.verdict for item in self.record.items}


class Suite:
    """Files, and ways to run them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tag = uuid.uuid4().hex
        self.log = path / "log"
        #: Seconds after which a run is taken to hang.
        self.patience = 240.0
        self.longest_wait = float("inf")
        self._started: list[subprocess.Popen[str] | WarmPytest] = []
        #: Runs of pytest and of `ondol test` are forks of one that is warm (`pytest.mark.warm_pytest`), unless they need another start.
        self.warm = False
        #: Other suites, too, have what a Python reads when it starts (LD_LIBRARY_PATH): one is kept warm for them.
        self.shares_variables = False
        #: Plugins that every run loads beside ours. `all_plugins`: all that are installed, a second for each process.
        self.plugins: list[str] = []
        self.broken_by: list[str] = []
        self.all_plugins = False
        #: Variables for every run.
        self.variables: dict[str, str] = {}
        (path / "recorder.py").write_text(RECORDER)
        (path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")

    def write(self, **files: str) -> Suite:
        """`name="text"` makes name.py; double underscores make folders."""
        for name, text in files.items():
            path = self.path / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return self

    def environment(self, **extra: str) -> dict[str, str]:
        return {
            # What runs keep for later is kept beside the suite, not in the home of who runs the tests: their own store
            # would fill every room with what they have compiled.
            "XDG_STATE_HOME": f"{self.path}-state",
            "XDG_CACHE_HOME": f"{self.path}-cache",
            **os.environ,
            "LOG": str(self.log),
            "RECORD": str(self.path / "record.json"),
            "ONDOL_TEST_TAG": self.tag,
            "PYTHONPATH": os.pathsep.join([str(self.path), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "" if self.all_plugins else "1",
            "PYTEST_PLUGINS": ",".join([*self.broken_by, *([] if self.all_plugins else ["ondol.pytest_plugin"])]),
            **({"PYTEST_ADDOPTS": " ".join(f"-p {name}" for name in self.plugins)} if self.plugins else {}),
            **self.variables,
            **extra,
        }

    def begin(self, command: list[str]) -> subprocess.Popen[str] | WarmPytest:
        """Warm, but where something decides before pytest is imported, or breaks Ondol on purpose."""
        environment = self.environment()
        path = environment["PYTHONPATH"].split(os.pathsep)
        broken = bool(self.broken_by) or any(Path(part, "sitecustomize.py").exists() for part in path if part)
        kept = self.shares_variables or early(environment) == EARLY
        warm = self.warm and not self.all_plugins and not broken and kept
        if not warm or command[2] not in ("pytest", "ondol"):
            return self.start(command)
        process = WarmPytest(command[2], command[3:], str(self.path), environment)
        self._started.append(process)
        return process

    def start(self, command: list[str], **kwargs: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self.path,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **kwargs,  # type: ignore[call-overload]
        )
        self._started.append(process)
        if broken := self.variables.get("SABOTAGED"):
            # The short patience of a sabotage is for what it breaks, not for a slow machine to begin.
            while not os.path.exists(broken) and process.poll() is None:
                select.select([], [], [], 0.005)
        return process

    def end(self) -> None:
        """Whatever still runs after a run that was given up ends now: it may hold our pipes open."""
        if any(process.poll() is None for process in self._started):
            self.kill_survivors()
        for process in self._started:
            process.wait()
            if process.stdout:
                process.stdout.close()
        self._started.clear()

    def _run(self, command: list[str], journal: Path | None) -> Result:
        self.log.write_text("")
        record = self.path / "record.json"
        record.unlink(missing_ok=True)
        process = self.begin(command)
        try:
            output, _ = process.communicate(timeout=self.patience)
        finally:
            self.end()
        seen = json.loads(record.read_text())["seen"] if record.exists() else []
        assert process.returncode is not None
        return Result(process.returncode, output, seen, self.log.read_text().splitlines(), journal)

    def plain(self, *arguments: str) -> Result:
        return self._run([sys.executable, "-m", "pytest", "-p", "recorder", *arguments], None)

    def pytest(self, *arguments: str, devices: str = "cpu:1") -> Result:
        """The plugin alone: `pytest --ondol-devices …`."""
        journal = self.path / f"journal-{uuid.uuid4().hex}.jsonl"
        command = [sys.executable, "-m", "pytest", "-p", "recorder", f"--ondol-devices={devices}"]
        return self._run([*command, f"--ondol-journal={journal}", "--ondol-native-stacks=0", *arguments], journal)

    def ondol(self, *arguments: str, devices: str = "cpu:2") -> Result:
        """The front: `ondol test …`."""
        journal = self.path / f"journal-{uuid.uuid4().hex}.jsonl"
        command = [sys.executable, "-m", "ondol", "test", "-p", "recorder", f"--devices={devices}"]
        return self._run([*command, f"--journal={journal}", "--native-stacks=0", *arguments], journal)

    def wait_for(self, condition: Callable[[], object], seconds: float = 120.0) -> bool:
        """Until it holds; False when it did not."""
        deadline = time.monotonic() + min(seconds, self.longest_wait)
        while not condition():
            if time.monotonic() > deadline:
                return False
            select.select([], [], [], 0.005)
        return True

    def all_gone(self) -> bool:
        """Nobody of any run is left; what was killed at its end may take a moment to die."""
        gone = self.wait_for(lambda: not self.survivors())
        if not gone:
            print("still alive:", *map(proctree.describe, self.survivors()), sep="\n")  # beside the failure
        return gone

    def kill_survivors(self) -> None:
        for pid in self.survivors():
            with suppress(ProcessLookupError):  # it was on its way out
                os.kill(pid, signal.SIGKILL)

    def survivors(self) -> list[int]:
        """Processes of any run of this suite that are still alive: they carry its tag in their environment."""
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environment = Path(f"/proc/{entry}/environ").read_bytes()
                state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if self.tag.encode() in environment and state != "Z":
                found.append(int(entry))
        return found


def journal_lines(journal: Path) -> list[dict[str, Any]]:
    """Of a run that may still go on: its last line may not be whole."""
    found = []
    for line in journal.read_bytes().splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


def assert_turns_red(
    suite: Suite, test: Callable[[Suite], None], sabotage: Callable[[], None], patience: float, *also: type[Exception]
) -> None:
    """The test fails once `sabotage`, of a module that is a pytest plugin, is done to every run of this suite."""
    done = suite.path / "sabotaged"
    module = Path(present(sys.modules[sabotage.__module__].__file__))
    suite.patience = suite.longest_wait = patience
    path = [str(suite.path), str(module.parent), os.environ.get("PYTHONPATH", "")]
    suite.broken_by.append(module.stem)
    suite.variables |= {
        "SABOTAGE": sabotage.__name__,
        "SABOTAGED": str(done),
        "PYTHONPATH": os.pathsep.join(path),
    }
    try:
        with pytest.raises((AssertionError, subprocess.TimeoutExpired, *also)):
            test(suite)
    finally:
        suite.end()
        suite.kill_survivors()
    assert done.exists(), "nothing was broken: the test is red for another reason"


def warm_for(request: pytest.FixtureRequest) -> bool:
    marked = request.node.get_closest_marker("warm_pytest") is not None
    return marked and "COVERAGE_PROCESS_CONFIG" not in os.environ  # what is measured has to start


@pytest.fixture
def suite(tmp_path: Path, request: pytest.FixtureRequest) -> Suite:
    made = Suite(tmp_path)
    made.warm = warm_for(request)
    for marker in request.node.iter_markers("plugins"):
        made.plugins += marker.args
        made.all_plugins |= not marker.args
    return made


@pytest.fixture(scope="module")
def new_suite(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Callable[[], Suite]:
    """Makes suites for runs that several tests of a file read; nobody writes to one after its run."""

    def make() -> Suite:
        made = Suite(tmp_path_factory.mktemp("shared"))
        made.warm = warm_for(request)
        return made

    return make
