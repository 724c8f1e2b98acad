"""`ondol store …`, `ondol tools`, `ondol config`: what a person types, sees and can script."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handmade import make_entry, write_triton_entry
from ondol.store import pack
from ondol.store.directory import DirectoryStore
from people import Program
from walls.rooms import NIGHTLY

pytestmark = pytest.mark.warm


Ondol = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ondol(program: Program) -> Ondol:
    def typed(*arguments: str, env: dict[str, str] | None = None, cwd: Path | str = "/") -> Any:
        return program.ondol(*arguments, env={"HOME": os.environ.get("HOME", "/"), **(env or {})}, cwd=cwd)

    return typed


def as_json(ondol: Ondol, *arguments: str) -> Any:
    done = ondol(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fill_store(store: DirectoryStore, count: int) -> None:
    entries = [make_entry(number) for number in range(count)]
    store.publish([(entry.address, pack.encode(entry)) for entry in entries])


def test_init_says_who_may_write(ondol: Ondol, tmp_path: Path) -> None:
    done = ondol("store", "init", str(tmp_path / "s"), "--writers", "1000,@daemon")
    assert done.stdout == f"store made at {tmp_path}/s; publishing for everybody: 1000,@daemon\n"
    fields = json.loads((tmp_path / "s" / "ondol-store.json").read_text())
    assert fields["writers"] == {"uids": [1000], "groups": ["daemon"], "any": False}
    assert (tmp_path / "s" / "lanes").stat().st_mode & 0o7777 == 0o1777


def test_init_never_overwrites_a_store(ondol: Ondol, tmp_path: Path) -> None:
    ondol("store", "init", str(tmp_path / "s"), "--writers", "7")
    before = (tmp_path / "s" / "ondol-store.json").read_bytes()
    again = ondol("store", "init", str(tmp_path / "s"), "--writers", "any")
    assert again.returncode == 3
    assert "there is a store" in again.stderr
    assert (tmp_path / "s" / "ondol-store.json").read_bytes() == before


@pytest.mark.parametrize("writers", ["nobody-here", "@", "@no-such-group", "1000;1001", "-5", "\u00b2", "7:", "7:a/b"])
def test_init_with_nonsense_writers(ondol: Ondol, tmp_path: Path, writers: str) -> None:
    done = ondol("store", "init", str(tmp_path / "s"), f"--writers={writers}")
    assert done.returncode == 2
    assert "writers: " in done.stderr
    assert not (tmp_path / "s").exists()


def test_ls_show_and_stats_tell_what_is_in_the_store(ondol: Ondol, store: DirectoryStore) -> None:
    fill_store(store, 3)
    where = ["--store", store.where]
    listed = as_json(ondol, "store", "ls", *where)["entries"]
    assert len(listed) == 3
    assert {"key", "tool", "scope", "size", "owner", "trusted"} <= set(listed[0])
    shown = ondol("store", "show", make_entry(1).address.key, *where)
    assert "kernel_1" in shown.stdout
    assert "add.cubin" in shown.stdout
    assert "1.50 s" in shown.stdout
    stats = as_json(ondol, "store", "stats", *where)
    assert (stats["entries"], stats["lanes"][0]["entries"]) == (3, 3)
    assert stats["bytes"] == sum(entry["size"] for entry in listed)
    text = ondol("store", "ls", *where)
    assert len(text.stdout.splitlines()) == 4
    assert ondol("store", "stats", *where).stdout.startswith(f"{store.where}: 3 entries")


def test_show_of_an_ambiguous_or_unknown_key(ondol: Ondol, store: DirectoryStore) -> None:
    fill_store(store, 2)
    assert "ambiguous" in ondol("store", "show", "K", "--store", store.where).stderr
    unknown = ondol("store", "show", "nothing", "--store", store.where)
    assert unknown.returncode == 3
    assert "no entry 'nothing'" in unknown.stderr


def damage(store: DirectoryStore, number: int) -> Path:
    (path,) = Path(store.where).rglob(f"{make_entry(number).address.key}.pack")
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    path.chmod(0o444)
    return path


def test_verify_tells_corrupt_from_good_and_sets_it_aside(ondol: Ondol, store: DirectoryStore) -> None:
    fill_store(store, 3)
    assert ondol("store", "verify", "--store", store.where).returncode == 0
    path = damage(store, 1)
    kept = ondol("store", "verify", "--store", store.where, "--keep")
    assert (kept.returncode, path.exists()) == (1, True)
    done = ondol("store", "verify", "--store", store.where)
    assert done.returncode == 1
    assert "corrupt" in done.stdout
    assert "set aside" in done.stdout
    assert not path.exists()
    assert len(list(Path(store.where).rglob("quarantine/*"))) == 1
    assert ondol("store", "verify", "--store", store.where).returncode == 0


def test_verify_does_not_take_unreadable_for_corrupt(ondol: Ondol, store: DirectoryStore) -> None:
    """Bytes that cannot be had say nothing about themselves: another status, and nothing is moved."""
    fill_store(store, 2)
    path = next(Path(store.where).rglob("*.pack"))
    path.chmod(0o666)  # open to everybody: nobody's word
    done = ondol("store", "verify", "--store", store.where)
    assert done.returncode == 4
    assert path.exists()
    damage(store, 1)
    damage(store, 0)
    path.chmod(0o666)
    assert ondol("store", "verify", "--store", store.where).returncode == 5


def age(store: DirectoryStore, number: int, days: float) -> None:
    (path,) = Path(store.where).rglob(f"{make_entry(number).address.key}.pack")
    then = time.time() - days * 86400
    os.utime(path, (then, then))


def test_gc_by_age_size_and_dry_run(ondol: Ondol, store: DirectoryStore) -> None:
    fill_store(store, 4)
    for number in range(4):
        age(store, number, days=number * 10)
    where = ["--store", store.where]
    dry = as_json(ondol, "store", "gc", *where, "--max-age", "15d", "--dry-run")
    assert (len(dry["removed"]), len(list(store.everything()))) == (2, 4)
    done = as_json(ondol, "store", "gc", *where, "--max-age", "15d")
    assert sorted(r["entry"].split("/")[-1] for r in done["removed"]) == sorted(
        make_entry(n).address.key for n in (2, 3)
    )
    size = next(iter(store.everything())).size
    as_json(ondol, "store", "gc", *where, "--max-size", str(size + 10))
    assert [s.address.key for s in store.everything()] == [make_entry(0).address.key]
    as_json(ondol, "store", "gc", *where, "--max-size", "0")
    assert list(store.everything()) == []


def test_gc_keeps_what_was_useful_yesterday(ondol: Ondol, store: DirectoryStore) -> None:
    fill_store(store, 2)
    for number in range(2):
        age(store, number, days=100)
    store.note_use([make_entry(0).address])
    as_json(ondol, "store", "gc", "--store", store.where, "--max-age", "30d")
    assert [s.address.key for s in store.everything()] == [make_entry(0).address.key]


def test_gc_removes_leftovers_of_dead_writers(ondol: Ondol, store: DirectoryStore) -> None:
    lane = store.my_lane()
    lane.make_folder("tmp", mode=0o700)
    folder = Path(store.where) / "lanes" / lane.name / "tmp"
    for name, days in (("old", 2.0), ("young", 0.0)):
        (folder / name).write_bytes(b"half")
        then = time.time() - days * 86400
        os.utime(folder / name, (then, then))
    assert as_json(ondol, "store", "gc", "--store", store.where, "--max-age", "1000d")["leftovers"] == 1
    assert [path.name for path in folder.iterdir()] == ["young"]


def test_gc_without_a_limit_removes_only_what_pull_requests_left(ondol: Ondol, store: DirectoryStore) -> None:
    """Not useful for two weeks, in a scope of a pull request: nobody reads it any more. Nothing of anybody else's."""
    entries = [make_entry(n, scope=scope) for n, scope in enumerate(("pr-1@x", "pr-2@x", "pr-3@x", "main", "private"))]
    store.publish([(entry.address, pack.encode(entry)) for entry in entries])
    then = time.time() - 15 * 86400
    for path in Path(store.where).glob("lanes/*/*/*/*/*.pack"):
        os.utime(path, (then, then) if "pr-2" not in str(path) else None)
    store.note_use([entries[2].address])
    planned = as_json(ondol, "store", "gc", "--store", store.where, "--dry-run")
    removed = as_json(ondol, "store", "gc", "--store", store.where)
    assert planned["removed"] == removed["removed"]
    assert [(gone["entry"].split("/")[0], gone["reason"]) for gone in removed["removed"]] == [("pr-1@x", "age of pr-*")]
    assert len(as_json(ondol, "store", "gc", "--store", store.where, "--pr-age", "0")["removed"]) == 2
    assert {stored.address.scope for stored in store.everything()} == {"main", "private"}


def test_gc_with_a_limit_that_makes_no_sense_removes_nothing(ondol: Ondol, store: DirectoryStore) -> None:
    fill_store(store, 1)
    assert ondol("store", "gc", "--store", store.where, "--max-age", "soon").returncode == 2
    assert len(list(store.everything())) == 1


def test_adopt_imports_the_whole_and_changes_nothing(ondol: Ondol, store: DirectoryStore, tmp_path: Path) -> None:
    cache = tmp_path / "raw"
    for number in range(5):
        write_triton_entry(cache, number)
    torn = write_triton_entry(cache, 10)
    (torn / "add.cubin").write_bytes(b"")
    incomplete = write_triton_entry(cache, 11)
    (incomplete / "__grp__add.json").unlink()
    before = sorted((str(p), p.stat().st_mtime_ns) for p in cache.rglob("*"))
    dry = as_json(ondol, "store", "adopt", str(cache), "--store", store.where, "--dry-run")
    assert (dry["found"], dry["published"]) == (5, 0)
    adopted = as_json(ondol, "store", "adopt", str(cache), "--store", store.where)
    assert (adopted["found"], adopted["published"]) == (5, 5)
    kinds = {problem["path"].split("/")[0]: problem["kind"] for problem in adopted["problems"]}
    assert kinds == {torn.name: "torn", incomplete.name: "incomplete"}
    for problem in adopted["problems"]:
        assert problem["owner"] == os.getuid()
        assert problem["mode"].startswith("0")
    assert sorted((str(p), p.stat().st_mtime_ns) for p in cache.rglob("*")) == before
    again = as_json(ondol, "store", "adopt", str(cache), "--store", store.where)
    assert (again["published"], again["already_there"]) == (0, 5)


def test_adopt_of_no_directory(ondol: Ondol, store: DirectoryStore) -> None:
    done = ondol("store", "adopt", "/no/such/cache", "--store", store.where)
    assert done.returncode == 2
    assert "is not a directory" in done.stderr


@pytest.mark.parametrize("command", ["ls", "stats", "verify"])
def test_commands_on_no_store_are_clear(ondol: Ondol, tmp_path: Path, command: str) -> None:
    done = ondol("store", command, "--store", str(tmp_path / "none"))
    assert done.returncode == 3
    assert f"no store at {tmp_path}/none" in done.stderr
    assert "ondol store init" in done.stderr


def test_tools_and_config_tell_what_is_set(ondol: Ondol) -> None:
    (triton,) = as_json(ondol, "tools", "triton")["tools"]
    assert (triton["name"], triton["class"], triton["managed"]) == ("triton", "B", True)
    text = ondol("tools", "triton", env={"TRITON_CACHE_DIR": "/mine"}).stdout
    assert "TRITON_CACHE_DIR = /mine" in text
    assert "left as it is" in text
    settings = json.loads(ondol("config", "--json", env={"ONDOL_SCOPE": "x"}).stdout)["settings"]
    assert settings["scope"] == {"value": "x", "origin": "ONDOL_SCOPE", "class": "trust"}
    assert "command line" in ondol("config", "--publish", "never").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["run"],
        ["store"],
        ["tools"],
        ["config"],
        *[["store", s] for s in ("init", "ls", "show", "verify", "stats", "gc", "adopt")],
    ],
)
def test_help_has_examples(ondol: Ondol, arguments: list[str]) -> None:
    done = ondol(*arguments, "--help")
    assert done.returncode == 0
    assert "ondol" in done.stdout
    if len(arguments) == 2 or arguments in (["run"], ["tools"], ["config"]):
        assert "examples:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu"], "did you mean run?"),
        (["run"], "no command to run"),
        (["run", "--stor", "x", "--", "true"], "--store"),
        (["run", "--publish", "maybe", "--", "true"], "never or on-success or auto"),
        (["run", "--tools", "tritn", "--", "true"], "triton"),
        (["run", "--store", "s3://bucket", "--", "true"], "s3://bucket"),
        (["store", "verfy"], "did you mean verify?"),
        (["store", "ls", "--colour"], "--colour"),
    ],
)
def test_usage_errors_say_what_to_type(ondol: Ondol, arguments: list[str], said: str) -> None:
    done = ondol(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_report_file_and_step_summary(program: Program, store_path: Path, tmp_path: Path) -> None:
    summary, report = tmp_path / "summary.md", tmp_path / "r.json"
    summary.write_text("before\n")
    for _ in range(2):
        job = program.job(
            store_path, "one", "two", options=("--json", str(report)), env={"GITHUB_STEP_SUMMARY": str(summary)}
        )
        assert job.status == 0
    said = json.loads(report.read_text())
    assert said["format"] == "ondol-run/1"
    assert said["status"] == 0
    tool = said["tools"]["triton"]
    assert (tool["filled"], tool["used"], tool["new"], tool["published"]) == (2, 2, 0, 0)
    assert said["seconds"]["run"] > 0
    lines = summary.read_text().splitlines()
    assert lines[0] == "before"
    assert "| triton | 0 | 0 | 2 | 2 | 0.00 s |" in lines
    assert any(line.startswith("| triton | 2 | 2 | 0 | 0 |") for line in lines)


def test_filled_cache_that_went_unused_is_mentioned(program: Program, store_path: Path) -> None:
    """ModelExpress' lesson: a cache that is delivered and never hit looks like success until somebody says so."""
    program.job(store_path, "one")
    job = program.job(store_path, "two")
    assert "1 entries were filled and none was used" in job.stderr
    assert "1 filled, 0 used, 1 new" in job.stderr


def test_fork_of_a_pull_request_publishes_nothing_into_main(program: Program, store_path: Path) -> None:
    pull_request = {"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/9/merge"}
    pull_request["GITHUB_REPOSITORY"] = "acme/ops"
    program.job(store_path, "one", env=pull_request)
    assert {path.parts[-4] for path in store_path.rglob("*.pack")} == {"pr-9@github.com+acme+ops"}
    assert program.job(store_path, "one", options=("--publish", "never")).hits == 0
    assert program.job(store_path, "one", env=pull_request).hits == 1


def test_provenance_is_kept(ondol: Ondol, program: Program, store_path: Path) -> None:
    env = {**NIGHTLY, "GITHUB_SHA": "abc123", "GITHUB_RUN_ID": "77"}
    program.job(store_path, "one", env=env)
    key = next(store_path.rglob("*.pack")).stem
    (shown,) = as_json(ondol, "store", "show", key, "--store", str(store_path))["entries"]
    assert shown["provenance"]["commit"] == "abc123"
    assert shown["provenance"]["run"] == "77"
    assert shown["provenance"]["triton"] == "3.9.0"
    assert shown["provenance"]["uid"] == os.getuid()


def test_default_store_is_made_on_first_use(program: Program, tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path)}
    for expected in (0, 1):
        command = ["run", "--", program.python, str(program.programs / "standin.py"), "k"]
        done = program.ondol(*command, env=env)
        assert json.loads(done.stdout)["hits"] == expected, done.stderr
    assert (tmp_path / "ondol" / "store" / "lanes").stat().st_mode & 0o7777 == 0o755


def test_command_that_removes_its_directory_does_not_lose_its_work(
    program: Program, store_path: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    command = f"{program.python} {program.programs}/standin.py one; rmdir {here}"
    done = program.ondol("run", "--store", str(store_path), "--", "sh", "-c", command, cwd=here)
    assert done.returncode == 0
    assert "1 published" in done.stderr
    assert "warning" not in done.stderr
