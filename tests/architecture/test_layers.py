"""The tree is the architecture: imports point down only, and nothing grows past what a reader can hold."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "ondol"
ROOT = Path(__file__).parents[2]

#: Rooms, lowest first. A module may import from lower rows and from its own room.
LAYERS: list[set[str]] = [
    {"errors", "exitcodes", "units", "foreign_text", "unguarded", "__version__"},
    {"options"},
    {"job_report", "config"},
    {"host"},
    {"store", "tools", "explain"},
    {"room", "trust", "fleet"},
    {"doctor", "guard", "report", "engines"},
    {"jobs", "testing"},
    {"test_jobs"},
    {"pytest_runner"},
    {"cli", "pytest_plugin"},
    {"__main__", "__init__"},
]
CACHE_WING = {"store", "tools", "room", "trust", "explain", "guard"}
RUN_WING = {"fleet", "engines"}
#: Modules that decide. They get facts, time and randomness as arguments and return a decision.
PURE = [
    "trust/policy.py",
    "trust/owners.py",
    "store/gc_plan.py",
    "room/choose.py",
    "room/select.py",
    "room/handover.py",
    "units.py",
    "foreign_text.py",
    "doctor/rights.py",
    "doctor/mount_rules.py",
    "doctor/commands.py",
    "fleet/model.py",
    "fleet/schedule.py",
    "fleet/situation.py",
    "fleet/stacks.py",
    "fleet/xdist.py",
    "fleet/verdict.py",
    "fleet/quarantine.py",
    "fleet/messages.py",
    "fleet/outcome.py",
    "fleet/past.py",
    "fleet/selection.py",
    "fleet/known.py",
    "report/compare.py",
    "report/timeline.py",
    "report/why_slow.py",
    "explain/match.py",
    "guard/msgpack.py",
    "explain/noise.py",
    "explain/explainer.py",
    "explain/text.py",
    "explain/pytest_log.py",
    "explain/junit_log.py",
]
ACTING = {"os", "subprocess", "socket", "threading", "time", "random", "pathlib", "shutil", "tempfile", "signal"}

MODULES = sorted(SRC.rglob("*.py"))


def room_of(path: Path) -> str:
    relative = path.relative_to(SRC)
    return relative.parts[0].removesuffix(".py")


def rank(room: str) -> int:
    for number, rooms in enumerate(LAYERS):
        if room in rooms:
            return number
    raise AssertionError(f"room {room!r} stands in no layer: add it to LAYERS, and to ARCHITECTURE.md")


def imports_of(path: Path) -> set[str]:
    """Every module of ours that this file imports, anywhere in it, as dotted names below `ondol`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.removeprefix("ondol.") for name in names if name.startswith("ondol.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path: Path) -> None:
    own = room_of(path)
    for name in imports_of(path):
        other = name.split(".")[0]
        if other == own:
            continue
        assert rank(other) < rank(own), f"{path.relative_to(ROOT)} ({own}) imports {name}: upwards or sideways"
        pair = {own, other}
        assert not (pair & CACHE_WING and pair & RUN_WING), f"{path}: the two wings meet only in test_jobs"


@pytest.mark.parametrize("relative", PURE)
def test_modules_that_decide_do_no_io(relative: str) -> None:
    tree = ast.parse((SRC / relative).read_text())
    imported = {alias.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    imported |= {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert not imported & ACTING
    calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not calls & {"open", "print", "input"}


#: Folders of the run wing, one per kind of process → what may not be imported there, and why.
PROCESSES = {
    "agent": ({"fleet.controller", "fleet.worker", "pytest", "_pytest"}, "the agent runs no user code"),
    "worker": ({"fleet.controller", "fleet.agent"}, "a worker decides nothing"),
    "controller": (set(), "it forks into the others"),
}


def everything_imported(path: Path) -> set[str]:
    """As `imports_of`, with what is not ours under its own name."""
    found = imports_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted((SRC / "fleet").rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_each_process_of_a_run_imports_what_its_folder_allows(path: Path) -> None:
    folder = path.parent.name
    if folder == "fleet":
        forbidden, why = {f"fleet.{process}" for process in PROCESSES}, "it may run in any of the processes"
    else:
        forbidden, why = PROCESSES[folder]
    broken = {n for n in everything_imported(path) for f in forbidden if n == f or n.startswith(f + ".")}
    assert not broken, f"{path.relative_to(ROOT)} imports {broken}: {why}"


def test_an_agent_loads_no_pytest() -> None:
    """Whatever its modules import in turn."""
    code = "import sys, ondol.fleet.agent.__main__; sys.exit([m for m in sys.modules if 'pytest' in m] or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


#: What no job has a use for: the other wing, other commands, and what is slow to import.
NOT_IN_A_JOB = {
    f"ondol.{room}" for room in ("fleet", "engines", "testing", "doctor", "guard", "explain", "pytest_plugin")
}
NOT_IN_A_JOB |= {"pytest", "_pytest", "pluggy", "xml", "html", "http", "email", "socket", "asyncio", "multiprocessing"}
NOT_IN_A_JOB |= {"dataclasses", "inspect", "ast", "logging", "subprocess", "tempfile", "cryptography", "tomllib"}
if sys.version_info < (3, 11):
    NOT_IN_A_JOB.discard("subprocess")  # the standard library's `platform` imports it there


def test_a_job_imports_only_what_jobs_need(tmp_path: Path) -> None:
    """Each of these would be paid for before every command of everybody."""
    words = [sys.executable, "-X", "importtime", "-m", "ondol", "run", "--quiet", "--", "true"]
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.returncode == 0, done.stderr
    assert "ondol.jobs.run_command" in imported
    before = subprocess.run([*words[:3], "-c", ""], env=env, cwd=tmp_path, capture_output=True, text=True).stderr
    unwanted = below(imported, NOT_IN_A_JOB)
    assert not {name for name in unwanted if f" {name}\n" not in before}


def below(imported: set[str], unwanted: set[str]) -> set[str]:
    return {name for name in imported for one in unwanted if name == one or name.startswith(one + ".")}


#: What `ondol test` has a use for only if something is asked for, or fails: other nodes, pages, faults of caches, tasks.
NOT_IN_A_RUN = {f"ondol.{name}" for name in ("engines.choose", "engines.links", "engines.slurm", "engines.template")}
NOT_IN_A_RUN |= {f"ondol.{name}" for name in ("explain", "guard", "doctor", "host.toml", "test_jobs.far_nodes")}
NOT_IN_A_RUN |= {f"ondol.report.{name}" for name in ("run_page", "run_junit", "run_perfetto", "run_json", "compare")}
NOT_IN_A_RUN |= {"asyncio", "http", "multiprocessing", "pickle", "pynvml", "tomllib"}
#: Of which the front, which is no pytest, has none either.
NOT_IN_THE_FRONT = NOT_IN_A_RUN | {"ondol.testing", "ondol.test_jobs.run_node", "pytest", "_pytest", "pluggy"}
NOT_IN_THE_FRONT |= {"email", "logging", "socket", "tempfile", "xml", "zipfile"}
#: Each module is a millisecond of everybody's smallest run. Whoever adds one says here that it is needed by all runs.
MOST_IN_THE_FRONT, MOST_IN_PYTEST = 90, 106


def test_a_run_of_one_test_imports_only_what_runs_need(tmp_path: Path) -> None:
    """The front, and pytest with what it forks. Once cost 131 and 130 modules of ours, 450 ms of computing."""
    (tmp_path / "test_one.py").write_text("def test_one(): pass\n")
    (tmp_path / "conftest.py").write_text(
        "import sys\ndef pytest_terminal_summary(): open('in_pytest', 'w').write('\\n'.join(sys.modules))\n"
    )
    words = [sys.executable, "-X", "importtime", "-m", "ondol", "test", "--devices=cpu:1", "-p", "no:cacheprovider"]
    env = {"PATH": os.defpath, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plain = subprocess.run([*words[:3], "-c", ""], env=env, cwd=tmp_path, capture_output=True, text=True).stderr
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    front = {name for line in lines if f" {(name := line.rpartition('|')[2].strip())}\n" not in plain}
    inside = set((tmp_path / "in_pytest").read_text().split())
    assert {"ondol.test_jobs.run_tests", "ondol.jobs.run_command"} <= front
    assert {"ondol.test_jobs.run_session", "ondol.fleet.worker.worker"} <= inside
    assert (below(front, NOT_IN_THE_FRONT), below(inside, NOT_IN_A_RUN)) == (set(), set())
    assert len(below(front, {"ondol"})) <= MOST_IN_THE_FRONT
    assert len(below(inside, {"ondol"})) <= MOST_IN_PYTEST


def test_only_one_module_leans_on_the_insides_of_pytest() -> None:
    found = {str(p.relative_to(SRC)) for p in MODULES for name in everything_imported(p) if name.startswith("_pytest")}
    assert found == {"fleet/pytest_inside.py"}


#: Who may touch a private name of pytest's objects, besides: `-n` cannot be an option of anybody else's otherwise.
_EXCUSED = {("testing/xdist_options.py", "group._addoption")}


def private_names(path: Path) -> set[str]:
    """Private attributes of other objects, by dot or by `getattr`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"getattr", "setattr", "hasattr"}:
            name = getattr(node.args[1], "value", "") if len(node.args) > 1 else ""
            found |= {f"{ast.unparse(node.args[0])}.{name}"} if re.match("_[a-z]", str(name)) else set()
    ours = r"(self|cls|os|sys|libc|watch)\.\w+|.*\._(replace|asdict|fields)|thread\._target"
    return {name for name in found if not re.fullmatch(ours, name)}


def test_nobody_else_touches_private_names_of_pytests_objects() -> None:
    """The terminal's writer, the session's fixtures, plugins' sessions: a new pytest breaks one file."""
    using = [p for p in MODULES if {"pytest"} & everything_imported(p) or p.parent.name == "report"]
    found = {(str(p.relative_to(SRC)), name) for p in using for name in private_names(p)}
    assert {one for one in found if one[0] != "fleet/pytest_inside.py"} == _EXCUSED


# ---------------------------------------------------------------------- the controller and those who decide for it


CONTROLLER = SRC / "fleet" / "controller" / "controller.py"
#: What it may keep. Whatever happened is in the record.
MOST_ATTRIBUTES = 20


def test_nobody_receives_the_controller() -> None:
    """Helpers get what they decide from and return actions; reports read the record."""
    importers = {str(p.relative_to(SRC)) for p in MODULES if "fleet.controller.controller.Controller" in imports_of(p)}
    assert importers == {"test_jobs/run_session.py"}
    readers = {str(p.relative_to(SRC)) for p in MODULES if p.parent.name == "report" for n in imports_of(p) if n.startswith("fleet.controller")}  # fmt: skip
    assert not readers
    calls = [node for node in ast.walk(ast.parse(CONTROLLER.read_text())) if isinstance(node, ast.Call)]
    handed = [
        ast.unparse(c) for c in calls for a in (*c.args, *(k.value for k in c.keywords)) if ast.unparse(a) == "self"
    ]
    assert not handed


def test_the_controller_keeps_little_beside_the_record() -> None:
    stores = (n for n in ast.walk(ast.parse(CONTROLLER.read_text())) if isinstance(n, ast.Attribute))
    kept = {n.attr for n in stores if isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == "self"}
    assert len(kept) <= MOST_ATTRIBUTES, sorted(kept)


def test_siblings_that_are_alternatives_do_not_know_each_other() -> None:
    for path in (SRC / "tools").glob("*.py"):
        shared = {"api", "table", "shapes", "build_inputs", "ninja", "ninja_built", "pickled"}
        if path.stem in {*shared, "registry", "__init__"}:
            continue
        others = {name for name in imports_of(path) if name.startswith("tools.") and name.split(".")[1] not in shared}
        assert not others, f"{path.name} imports {others}: shared code belongs in tools/api.py or tools/shapes.py"
    for name, other in (("uv", "guard.pip"), ("pip", "guard.uv")):
        assert not [one for one in imports_of(SRC / "guard" / f"{name}.py") if one.startswith(other)]


def test_only_who_opens_or_keeps_a_store_knows_what_it_is_made_of() -> None:
    """Jobs publish and fill by the contract (`store/api.py`): a store need not be a directory."""
    keepers = {"store", "doctor", "cli"}
    rest = [path for path in MODULES if room_of(path) not in keepers]
    broken = {str(p.relative_to(SRC)) for p in rest if any(n.startswith("store.directory") for n in imports_of(p))}
    assert broken == {"jobs/open_store.py"}
    for name in ("publish", "fill"):
        assert "store.api.Backend" in imports_of(SRC / "room" / f"{name}.py")


def test_a_job_changes_on_its_own_page_only() -> None:
    """Steps tell it what they found by its methods: else nobody can say who changed what, and when."""
    for path in MODULES:
        if path == SRC / "jobs" / "job.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [t.elts if isinstance(t, ast.Tuple) else [t] for t in targets]
            owners = [t.value for some in names for t in some if isinstance(t, ast.Attribute)]
            changed = [o for o in owners if isinstance(o, ast.Name) and o.id == "job" and room_of(path) == "jobs"]
            assert not changed, f"{path.relative_to(ROOT)}:{node.lineno} changes a job; give it a method in jobs/job.py"


@pytest.mark.parametrize("path", [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))], ids=lambda p: str(p.name))
def test_no_file_outgrows_its_reader(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 600


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
