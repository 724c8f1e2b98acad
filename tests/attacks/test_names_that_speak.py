"""Names made by others that drive a terminal, command a CI system, or leave the line, the code span or the variable.

Kernel titles, entries, lanes, rooms, files, test ids, lines of logs: whatever is hostile in them is shown harmlessly,
by every command that shows it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from handmade import make_entry, write_triton_entry
from ondol.cli.open_close import write_github
from ondol.foreign_text import code_span
from ondol.job_report import JobReport
from ondol.report import terminal
from ondol.store import pack
from ondol.store.directory import DirectoryStore
from people import ROOT, Program

#: An escape code, a line of its own, commands for GitHub, Azure, GitLab and Jenkins, text that runs backwards.
EVIL = (
    "x\x1b[2J\x1b]0;title\x07\r\n::error::pwned\n  ::set-env name=A::pwned\n##[add-mask]pwned"
    "##vso[task.setvariable variable=A]pwned\x1b[0Ksection_start:1:pwned\r\x1b[0K\x9b31m\u202e`|<b>pwned"
)
_COMMAND = re.compile(r"^\s*::|##\w*\[|^(---|\+\+\+) ", re.MULTILINE)

Ondol = Callable[..., str]


def harmless(text: str) -> str:
    bad = sorted({letter for letter in text if not letter.isprintable() and letter not in "\n\t"})
    assert not bad, (bad, text)
    assert not _COMMAND.search(text), text
    assert not re.search(r"^\s*(: :|pwned)", text, re.MULTILINE), text  # a line of their own, harmless or not
    return text


@pytest.fixture
def ondol(program: Program, tmp_path: Path) -> Ondol:
    """Runs a command of ours; what it printed must be harmless, and is returned."""

    def run(*words: str, **env: str) -> str:
        command = [sys.executable, "-m", "ondol", *words]
        env = program.env(HOME=str(tmp_path), **env)
        done = subprocess.run(command, env=env, capture_output=True, timeout=120, check=False, cwd=tmp_path)
        assert b"Traceback" not in done.stderr, done.stderr
        assert done.returncode != 125, done.stderr
        return harmless((done.stdout + done.stderr).decode("utf-8"))

    return run


@pytest.fixture
def evil_store(store_path: Path, store: DirectoryStore) -> Path:
    """Every name that a writer can choose."""
    entry = make_entry(1)._replace(title=EVIL, provenance={"uid": 1, "run": EVIL, EVIL[:40]: EVIL, "host": EVIL})
    store.publish([(entry.address, pack.encode(entry))])
    lanes = store_path / "lanes"
    (lane,) = lanes.iterdir()
    for above in (lanes, lane, lane / "main", lane / "main" / "triton", lane / "main" / "triton" / "any"):
        (above / EVIL).mkdir()
        (above / EVIL / EVIL).write_text("x")
        (above / f"{EVIL}.pack").write_text("x")
    (lane / "main" / "triton" / "any" / "KTORN.pack").write_bytes(b"torn")
    return store_path


@pytest.mark.parametrize(
    "words",
    [
        ("ls",), ("ls", "--json"), ("stats",), ("stats", "--json"), ("verify",), ("verify", "--json"),
        ("gc", "--max-size", "1K", "--dry-run"), ("show", make_entry(1).address.key),
        ("show", make_entry(1).address.key, "--json"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_evil_names_in_a_store_drive_no_terminal(ondol: Ondol, evil_store: Path, words: tuple[str, ...]) -> None:
    assert ondol("store", words[0], "--store", str(evil_store), *words[1:])


def test_evil_path_of_a_store_drives_no_terminal(ondol: Ondol, tmp_path: Path) -> None:
    there = str(tmp_path / EVIL)
    for typed in (("ls",), ("stats",), ("verify",), ("init", there)):
        ondol("store", typed[0], *(("--store", there) if len(typed) == 1 else typed[1:]))
    ondol("run", "-v", "--store", there, "--", "true")
    ondol("doctor", there)


def test_evil_names_of_kernels_drive_no_terminal_and_no_page(
    ondol: Ondol, program: Program, store_path: Path, tmp_path: Path
) -> None:
    kernel = EVIL.replace("/", "")[:60]
    standin = [sys.executable, str(program.programs / "standin.py"), kernel]
    summary = tmp_path / "summary.md"
    words = ("run", "-v", "--store", str(store_path), "--tools", "triton", "--require-warm", "--")
    quiet = ["sh", "-c", 'exec "$@" > /dev/null', "sh", *standin]
    said = ondol(*words, *quiet, GITHUB_STEP_SUMMARY=str(summary))
    assert "not warm" in said
    harmless(summary.read_text().replace("### Ondol", ""))
    harmless(ondol("store", "ls", "--store", str(store_path)))


def test_evil_path_of_a_room_drives_no_terminal(ondol: Ondol, tmp_path: Path) -> None:
    base = tmp_path / EVIL
    base.mkdir()
    (base / f"ondol-room-{os.getuid()}-{EVIL}").mkdir()
    ondol("run", "-v", "--room-dir", str(base), "--keep-room", "--", "true")
    ondol("gc", "--room-dir", str(base))
    ondol("gc", "--room-dir", str(base), "--json")
    ondol("doctor", str(base))


def test_evil_names_in_an_adopted_cache_drive_no_terminal(ondol: Ondol, store_path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    write_triton_entry(cache, 1, name="add")
    (cache / EVIL).mkdir()
    (cache / EVIL / EVIL).write_text("x")
    torn = write_triton_entry(cache, 2, name="mul")
    (torn / f"{EVIL}.json").write_text("{")
    (torn / "__grp__mul.json").write_text("{")
    for extra in ((), ("--dry-run",), ("--json",)):
        assert ondol("store", "adopt", str(cache), "--tool", "triton", "--store", str(store_path), *extra)


def test_evil_names_in_an_examined_cache_drive_no_terminal(ondol: Ondol, tmp_path: Path) -> None:
    cache = tmp_path / EVIL
    (cache / EVIL).mkdir(parents=True)
    (cache / EVIL).chmod(0o777)
    (cache / EVIL / EVIL).write_text("x")
    (cache / EVIL / EVIL).chmod(0o000)
    assert ondol("doctor", str(cache))
    assert ondol("doctor", "--json", str(cache))
    assert ondol("doctor", "--fix", "--dry-run", str(cache))
    assert ondol("doctor", "--fix", str(cache))


def test_evil_names_in_a_guarded_cache_drive_no_terminal(ondol: Ondol, tmp_path: Path) -> None:
    cache = tmp_path / EVIL
    archive = cache / "archive-v0" / EVIL
    (archive / f"{EVIL[:50]}.dist-info").mkdir(parents=True)
    (cache / f"{EVIL}.http").write_text("x")
    ondol("guard", "-v", "--verify", "--cache", str(cache), "--", "true")
    ondol("guard", "--cache", str(cache), "--selftest")


def test_evil_log_is_explained(ondol: Ondol, tmp_path: Path) -> None:
    log = tmp_path / "evil.log"
    known = "PermissionError: [Errno 13] Permission denied: '/c/K/tmp.pid_1_"
    log.write_text(f"FAILED tests/x.py::test_{EVIL} - {known}{EVIL}'\nE   {known}{EVIL}'\n")
    assert ondol("explain", str(log))
    xml = tmp_path / "evil.xml"
    name = (
        EVIL.replace("\x1b", "")
        .replace("\x07", "")
        .replace("\x9b", "")
        .replace("<", "")
        .replace("\n", "&#10;")
        .replace("\r", "&#13;")
    )
    fault = f"{known}{name}'"
    xml.write_text(
        f'<testsuite><testcase classname="{name}" name="{name}"><failure message="{fault}">{fault}</failure></testcase>'
        f'<testcase name="{name}2"><failure>{name}</failure></testcase></testsuite>'
    )
    assert ondol("explain", "--all", str(xml), str(log))
    assert ondol("explain", "--json", str(xml))


def test_evil_command_line_drives_no_terminal(ondol: Ondol) -> None:
    for typed in (
        ("run", EVIL),
        ("run", f"--{EVIL}"),
        (EVIL,),
        ("store", "show", EVIL),
        ("explain", EVIL),
        ("run", "--store", EVIL, "--", "true"),
    ):
        assert ondol(*typed)


def test_evil_settings_are_shown(ondol: Ondol) -> None:
    assert ondol("config", ONDOL_STORE=f"/tmp/{EVIL}")
    assert ondol("tools", "triton", TRITON_CACHE_DIR=EVIL)
    assert ondol("tools", TRITON_CACHE_DIR=EVIL)


def test_value_with_line_ends_plants_no_variable_in_later_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_ENV", "GITHUB_OUTPUT"):
        monkeypatch.setenv(name, str(tmp_path / name))
    write_github({"TMPDIR": "/tmp/x\nLD_PRELOAD=/tmp/evil.so\n"}, {"room": "/tmp/plain"})
    lines = (tmp_path / "GITHUB_ENV").read_text().splitlines()
    name, delimiter = lines[0].split("<<")
    assert name == "TMPDIR"
    assert lines[1:] == ["/tmp/x", "LD_PRELOAD=/tmp/evil.so", "", delimiter]  # one value, as GitHub reads it
    assert len(delimiter) > 30
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == "room=/tmp/plain\n"


def test_markdown_of_others_stays_in_its_place() -> None:
    report = JobReport(["x"], "store", "main")
    report.warn(f"{EVIL} [click](http://evil) <img src=x> | cell")
    report.remarks.append(EVIL)
    report.update("triton", new=1, published=1)
    shown = terminal.step_summary(report)
    harmless(shown.replace("### Ondol", ""))
    assert not re.search(r"(?<!\\)[<\[`]", shown)
    assert "`" not in code_span("a`b``c")[1:-1]


def test_evil_tests_drive_neither_summary_nor_report(ondol: Ondol, tmp_path: Path) -> None:
    """What a test raised, its name and its file, in the step summary and in `ondol report`."""
    (tmp_path / "test_evil.py").write_text(
        f"import pytest\n@pytest.mark.parametrize('x', [1], ids=[{EVIL[:30]!r}])\n"
        f"def test_evil(x):\n    raise RuntimeError({EVIL!r})\n"
    )
    summary = tmp_path / "summary.md"
    state = str(tmp_path / "state")
    command = [sys.executable, "-m", "ondol", "test", "--devices", "cpu:1", "test_evil.py"]
    env = {**os.environ, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "XDG_STATE_HOME": state}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout
    told = summary.read_text()
    assert "test_evil" in told
    harmless(told.replace("### ", ""))
    report = subprocess.run(
        [sys.executable, "-m", "ondol", "report", "latest"], env=env, cwd=tmp_path, capture_output=True, check=False
    )
    outside = re.sub(r"`[^`]*`", "", harmless(report.stdout.decode().replace("### ", "")))
    assert not re.search(r"(?<!\\)[<\[`]", outside)


def test_only_one_place_prints() -> None:
    """Whoever writes to the terminal past `cli/output` writes past its protection."""
    found = set()
    for path in sorted((ROOT / "src" / "ondol").rglob("*.py")):
        source = path.read_text()
        if re.search(r"^\s*print\(|sys\.(stdout|stderr)\.write|\.(stdout|stderr)\.buffer\.write", source, re.MULTILINE):
            found.add(str(path.relative_to(ROOT / "src" / "ondol")))
    ours_alone = {"unguarded.py"}  # one sentence of our own, on a Python that cannot import the rest
    question = {"host/interpreter.py", "host/gpu_context.py", "host/enter_place.py"}  # programs that answer us
    bar = {"report/progress.py"}  # a line that is taken away again; its words go through `printable`
    assert found <= ours_alone | question | bar | RUN_WING, found


#: Write what pytest's own terminal would not; through `printable`.
RUN_WING = {"test_jobs/run_node.py", "test_jobs/run_tests.py", "testing/mistyped.py"}


def test_json_stays_the_same_json(ondol: Ondol, evil_store: Path) -> None:
    told = json.loads(ondol("store", "show", make_entry(1).address.key, "--json", "--store", str(evil_store)))[
        "entries"
    ]
    assert EVIL in _values(told)


def _values(told: object) -> list[object]:
    if isinstance(told, dict):
        return [one for value in told.values() for one in _values(value)]
    if isinstance(told, list):
        return [one for value in told for one in _values(value)]
    return [told]
