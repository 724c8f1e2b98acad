"""`ondol doctor` as a command: what it prints, how it ends, and that no single check can take it down."""

from __future__ import annotations

import ast
import inspect
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor_runs import Doctor, look, machine
from handmade import key_of, write_triton_entry
from ondol.doctor import api, examine, gather, registry, walk
from ondol.doctor.api import Finding, Location
from ondol.doctor.registry import Check
from ondol.doctor.subject import CACHE, ROLES, Subject
from ondol.doctor.walk import Bounds
from people import ROOT, Program

pytestmark = pytest.mark.warm

FIELDS: dict[str, Any] = {
    "format": str,
    "host": str,
    "uid": int,
    "healthy": bool,
    "errors": int,
    "warnings": int,
    "notes": int,
    "examined": list,
    "findings": list,
    "repairs": list,
}
EXAMINED: dict[str, Any] = {
    "path": str,
    "roles": list,
    "state": str,
    "tool": str,
    "file_system": str,
    "entries": int,
    "size": int,
    "stopped": str,
}
FINDING: dict[str, Any] = {
    "subject": str,
    "check": str,
    "severity": str,
    "what": str,
    "where": dict,
    "why": str,
    "fix": str,
    "places": int,
    "safe": bool,
}
WHERE: dict[str, Any] = {"path": str, "owner": int, "group": int, "mode": str}
REPAIR: dict[str, Any] = {"action": str, "path": str, "command": str, "done": bool, "refused": str}


def conforms(value: dict[str, Any], fields: dict[str, Any]) -> None:
    assert list(value) == list(fields)
    for name, kind in fields.items():
        assert type(value[name]) is kind, (name, value[name])


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """A cache with something of each severity in it, and something to mend."""
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o775)
    for number in range(3):
        write_triton_entry(cache, number)
    (cache / key_of(1) / "add.cubin").write_bytes(b"")
    (cache / "stranger").mkdir()
    return cache


def test_fields_of_the_json_are_the_documented_ones(sick: Path, doctor: Doctor) -> None:
    said = doctor(sick, "--dry-run")
    conforms(said.json, FIELDS)
    for one in said.json["examined"]:
        conforms(one, EXAMINED)
    for one in said.json["findings"]:
        conforms(one, FINDING)
        conforms(one["where"], WHERE)
        assert one["severity"] in api.SEVERITIES
        assert one["check"] in registry.CHECKS
    for one in said.json["repairs"]:
        conforms(one, REPAIR)
    assert said.json["repairs"]
    assert {one["severity"] for one in said.json["findings"]} == set(api.SEVERITIES)
    page = (ROOT / "docs" / "reference" / "doctor.md").read_text()
    for fields in (FIELDS, EXAMINED, FINDING, WHERE, REPAIR):
        for name in fields:
            assert f"`{name}`" in page, f"{name} is not documented"


@pytest.mark.parametrize(
    ("checks", "options", "status"),
    [
        ("entries", (), 1),
        ("setgid", (), 0),
        ("setgid", ("--strict",), 1),
        ("acls", ("--strict",), 0),
    ],
)
def test_status_is_the_documented_one(
    program: Program, sick: Path, checks: str, options: tuple[str, ...], status: int
) -> None:
    done = program.ondol("doctor", str(sick), "--only", checks, *options)
    assert done.returncode == status, done.stdout


def test_notes_do_not_fail_a_strict_run(program: Program, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for number in range(2):
        write_triton_entry(cache, number)
    (cache / "stranger").mkdir()
    done = program.ondol("doctor", str(cache), "--only", "entries", "--strict")
    assert "0 errors, 0 warnings, 1 note." in done.stdout
    assert done.returncode == 0


def test_setting_of_another_command_does_not_make_it_strict(program: Program, sick: Path) -> None:
    """ONDOL_STRICT is about `ondol run`."""
    done = program.ondol("doctor", str(sick), "--only", "setgid", env={"ONDOL_STRICT": "1"})
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "owner"), "did you mean owners?"),
        (("--skip", "nonsense-altogether"), "ondol doctor --list"),
        (("--limit", "0"), "expected a number above 0"),
        (("--limit", "many"), "expected a number above 0"),
        (("--walk-time", "-5"), "expected a time"),
        (("--timeout", "soon"), "expected a time"),
        (("--store", "s3://bucket"), "name a directory"),
    ],
)
def test_wrong_usage_is_said(program: Program, arguments: tuple[str, ...], says: str) -> None:
    done = program.ondol("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_list_and_choice_of_checks(program: Program, sick: Path, doctor: Doctor) -> None:
    listed = program.ondol("doctor", "--list").stdout
    for name, check in registry.CHECKS.items():
        assert f"\n{name} " in listed
        assert check.summary in listed
    assert {one["check"] for one in doctor(sick, "--only", "setgid,entries").json["findings"]} == {"setgid", "entries"}
    assert "entries" not in {one["check"] for one in doctor(sick, "--skip", "entries").json["findings"]}


def test_output_without_a_terminal_has_no_escapes_and_no_progress_bar(program: Program, sick: Path) -> None:
    done = program.ondol("doctor", str(sick))
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    for line in ("where  ", "why    ", "fix    "):
        assert line in done.stdout


def test_hostile_name_does_not_reach_the_terminal(program: Program, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    evil = cache / "\x1b]0;owned\x07\n  nothing wrong"
    evil.mkdir()
    evil.chmod(0o777)
    done = program.ondol("doctor", str(cache), "--only", "world-writable")
    assert "\x1b" not in done.stdout
    assert "\n  nothing wrong" not in done.stdout
    assert "ERROR" in done.stdout or "WARNING" in done.stdout


def test_everything_a_job_uses_is_looked_at(doctor: Doctor, tmp_path: Path, store_path: Path) -> None:
    home = tmp_path / "home"
    write_triton_entry(home / ".triton" / "cache", 1)
    (tmp_path / "tmp").mkdir()
    env = {"HOME": str(home), "TMPDIR": str(tmp_path / "tmp"), "ONDOL_STORE": str(store_path), "USER": "somebody"}
    said = doctor(env=env)
    roles = {one["path"]: one["roles"] for one in said.json["examined"]}
    assert roles[str(store_path)] == ["store"]
    assert roles[str(home / ".triton" / "cache")] == ["cache"]
    assert roles[str(home)] == ["home"]
    assert roles[str(tmp_path / "tmp")] == ["room", "temporary"]
    assert roles[""] == ["machine"]
    triton = next(one for one in said.json["examined"] if one["tool"] == "triton")
    assert (triton["entries"], triton["size"] > 0) == (7, True)


def test_same_directory_is_looked_at_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    subjects = gather.subjects(machine(), [str(tmp_path), str(tmp_path / "link"), f"{tmp_path}/."], Bounds())
    assert len(subjects) == 1


# -- a check of ours fails ---------------------------------------------------------------------------------------


def broken_check(way: str, *, walks: bool) -> Check:
    def run(subject: Subject) -> Iterator[Finding]:
        if way == "raises":
            raise ZeroDivisionError("of our own making")
        if way == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "hangs":
            signal.pause()
        if way == "looks at the tree":
            assert subject.tree.entries
        yield Finding("note", "alive", Location("/"), "")

    return Check("broken", run, frozenset({CACHE}), walks=walks)


@pytest.mark.parametrize("walks", [True, False])
@pytest.mark.parametrize("way", ["raises", "dies", "hangs"])
def test_broken_check_leaves_the_others_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, walks: bool
) -> None:
    """It is reported in words, without a traceback; what others found is still there."""
    tmp_path.chmod(0o777)
    subjects = gather.subjects(machine(), [str(tmp_path)], Bounds())
    # The broken one alone has little time: on a busy machine a good one may need a second.
    checks = [
        broken_check(way, walks=walks)._replace(seconds=1.0 if way == "hangs" else 30.0),
        *registry.choose(["world-writable"], []),
    ]
    findings = {finding.check: finding for finding in examine.examine(subjects, checks, lambda *_: None)[0].findings}
    assert set(findings) == {"broken", "world-writable"}
    broken = findings["broken"]
    assert broken.severity == ("error" if way == "hangs" else "warning")
    assert "Traceback" not in broken.what + broken.why
    if way == "raises":
        assert "ZeroDivisionError: of our own making at test_doctor_command.py" in broken.what


def test_walk_that_hangs_leaves_the_probes_standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "_GRACE", 1.0)
    monkeypatch.setattr(walk, "walk", lambda *_: signal.pause())
    checks = [*registry.choose(["owners", "space"], []), broken_check("", walks=False)]
    subjects = gather.subjects(machine(), [str(tmp_path)], Bounds(seconds=0.1))
    hung, alive = examine.examine(subjects, checks, lambda *_: None)[0].findings
    assert (hung.check, hung.severity, alive.what) == ("walk", "error", "alive")


def test_check_that_walks_without_saying_so_cannot_walk(tmp_path: Path) -> None:
    subjects = gather.subjects(machine(), [str(tmp_path)], Bounds())
    liar = broken_check("looks at the tree", walks=False)
    (finding,) = examine.examine(subjects, [liar], lambda *_: None)[0].findings
    assert "AttributeError" in finding.what


def test_vanishing_directory_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir()
    subjects = gather.subjects(machine(), [str(tmp_path / "cache")], Bounds())
    (tmp_path / "cache").rmdir()
    findings = examine.examine(subjects, registry.choose([], []), lambda *_: None)[0].findings
    assert findings
    assert {finding.severity for finding in findings} == {"warning"}
    assert all("No such file or directory" in finding.what for finding in findings)


# -- the contract of checks and their page -------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry.CHECKS)
def test_every_check_keeps_the_contract(name: str) -> None:
    check = registry.CHECKS[name]
    assert check.name == name
    assert name == name.lower()
    assert check.roles
    assert check.roles <= set(ROLES)
    assert "\n" not in check.summary
    assert 20 < len(check.summary) < 120
    calls = [node.func for node in ast.walk(ast.parse(inspect.getsource(check.run))) if isinstance(node, ast.Call)]
    used = {called.id for called in calls if isinstance(called, ast.Name)}
    assert not used & {other.run.__name__ for other in registry.CHECKS.values()}, "a check knows no other one"


def test_every_finding_has_a_cure_and_a_reason(sick: Path) -> None:
    for finding in look(sick):
        assert finding.why
        assert finding.where.path.startswith("/")
        assert json.dumps(finding._asdict(), default=str)
