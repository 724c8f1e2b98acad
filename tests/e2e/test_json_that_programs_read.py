"""Every `--json` has a `format`, and docs/reference/json.md lists exactly the fields that are there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from people import Program

pytestmark = pytest.mark.warm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "json.md").read_text()


def documented() -> dict[str, tuple[dict[str, set[str]], set[str]]]:
    """format → (field → the fields of each thing in it, what may be missing)"""
    found = {}
    for section in PAGE.split("\n## ")[1:]:
        fields: dict[str, set[str]] = {}
        maybe: set[str] = set()
        for cells in re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.M):
            named = [name.removesuffix("[]") for name in re.findall(r"`([^`]+)`", cells[0])]
            inner = set(re.findall(r"`(\w+)`", cells[1])) if "[]`" in cells[0] else set()
            fields |= dict.fromkeys(named, inner)
            maybe |= set(named) if "*maybe*" in cells[0] else inner if "*maybe*" in cells[1] else set()
        found[section.partition("\n")[0]] = (fields, maybe)
    return found


def check(said: dict[str, Any], name: str) -> dict[str, Any]:
    fields, maybe = documented()[name]
    assert next(iter(said)) == "format"
    assert said["format"] == name
    assert set(fields) - maybe <= set(said) - {"format"} <= set(fields), name
    for field, inner in fields.items():
        for thing in said.get(field, ()) if inner else ():
            assert inner - maybe <= set(thing) <= inner, (name, field)
    return said


class Machine:
    def __init__(self, program: Program, path: Path) -> None:
        self.program, self.path = program, path
        self.env = {"HOME": str(path), "XDG_STATE_HOME": str(path / "state"), "XDG_CONFIG_HOME": str(path / "config")}
        self.seen: set[str] = set()

    def says(self, name: str, *words: str, status: int = 0) -> dict[str, Any]:
        done = self.program.ondol(*words, env=self.env, cwd=self.path)
        assert done.returncode == status, done
        self.seen.add(name)
        return check(json.loads(done.stdout), name)

    def writes(self, name: str, *words: str) -> dict[str, Any]:
        file = self.path / f"{name.replace('/', '-')}.json"
        done = self.program.ondol(*[str(file) if word == "FILE" else word for word in words], env=self.env)
        assert done.returncode == 0, done
        self.seen.add(name)
        return check(json.loads(file.read_text()), name)


@pytest.fixture
def machine(program: Program, tmp_path: Path) -> Machine:
    return Machine(program, tmp_path)


def test_every_format_is_documented_and_every_documented_one_is_written(machine: Machine) -> None:
    store, at = str(machine.path / "store"), ("--store", str(machine.path / "store"))
    rooms = ("--room-dir", str(machine.path))
    standin = (machine.program.python, str(machine.program.programs / "standin.py"), "a", "b")
    says, writes = machine.says, machine.writes
    says("ondol-store-init/1", "store", "init", store, "--json")
    writes("ondol-run/1", "run", *at, *rooms, "--tools", "triton", "--json", "FILE", "--", *standin)
    entry = says("ondol-store-ls/1", "store", "ls", *at, "--json")["entries"][0]
    says("ondol-store-show/1", "store", "show", entry["key"], *at, "--json")
    says("ondol-store-stats/1", "store", "stats", *at, "--json")
    says("ondol-store-verify/1", "store", "verify", *at, "--json")
    says("ondol-store-gc/1", "store", "gc", *at, "--json")
    says("ondol-store-writers/1", "store", "writers", "list", *at, "--json")
    says("ondol-store-require-signature/1", "store", "require-signature", *at, "--json")
    says("ondol-store-revoke/1", "store", "revoke", "--run", "7", *at, "--json")
    assert says("ondol-store-revocations/1", "store", "revoke", "--list", *at, "--json")["revocations"]
    (machine.path / "raw").mkdir()
    says("ondol-store-adopt/1", "store", "adopt", "raw", *at, "--json")
    key = says("ondol-key-new/1", "key", "new", "key", "--json")
    says("ondol-key-new/1", "key", "new", "-", "--json")
    says("ondol-key-show/1", "key", "show", "key", "--json")
    says("ondol-key-trust/1", "key", "trust", key["public"], "--json")
    assert says("ondol-key-list/1", "key", "list", *at, "--json")["keys"]
    says("ondol-key-revoke/1", "key", "revoke", key["name"], "--json")
    says("ondol-tools/1", "tools", "--json")
    says("ondol-config/1", "config", "--json")
    says("ondol-doctor/1", "doctor", "raw", "--json")
    (machine.path / "log").write_text("nothing known\n")
    says("ondol-explain/1", "explain", "log", "--json", status=1)
    says("ondol-faults/1", "explain", "--list", "--json")
    opened = says("ondol-open/1", "open", "--format", "json", "--tools", "triton", *at, *rooms)
    says("ondol-gc/1", "gc", *rooms, "--json", "--dry-run")
    writes("ondol-run/1", "close", opened["room"], "--status", "0", "--json", "FILE")
    (machine.path / "cache").mkdir()
    writes("ondol-guard/1", "guard", "--cache", str(machine.path / "cache"), "--json", "FILE", "--", "true")
    says("ondol-history/1", "history", "--json")
    says("ondol-history-tests/1", "history", "flaky", "--json")
    assert machine.seen | {"ondol-report/1", "ondol-compare/1"} == set(documented())


def test_the_json_of_a_run_of_tests(machine: Machine) -> None:
    suite = machine.path / "suite"
    suite.mkdir()
    (suite / "test_a.py").write_text("def test_a(): pass\n")
    kept = str(machine.path / "a.jsonl")
    words = ("--devices", "cpu:1", "--journal", kept, "-p", "no:cacheprovider", str(suite))
    done = machine.program.ondol("test", *words, env=machine.env, cwd=suite)
    assert done.returncode == 0, done
    assert machine.writes("ondol-report/1", "report", kept, "--json", "FILE")["items"]
    machine.writes("ondol-compare/1", "report", "--compare", kept, kept, "--json", "FILE")
    assert machine.says("ondol-history/1", "history", "--json")["runs"]
    assert machine.says("ondol-history-tests/1", "history", "test_a", "--json")["tests"]
