"""Words, records, the hand-made option parser, the bounded helper, the owners of processes."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ondol import errors, units
from ondol.cli import run
from ondol.errors import UsageError
from ondol.foreign_text import printable
from ondol.host import bounded, identity, process, proctree, records
from ondol.room import room
from ondol.room.fill import Filled, FillResult
from ondol.store import marker
from ondol.store.entry import Address
from ondol.tools.api import CacheDir


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("1024", 1024), ("1k", 1000), ("1KiB", 1024), ("1.5GiB", 3 << 29), (" 2 MB ", 2_000_000)],
)
def test_sizes_are_read_as_people_write_them(text: str, value: int) -> None:
    assert units.parse_size(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("90", 90.0), ("90s", 90.0), ("15m", 900.0), ("1.5h", 5400.0), ("7d", 604800.0)]
)
def test_durations_are_read_as_people_write_them(text: str, value: float) -> None:
    assert units.parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "x", "-5", "10 bananas", "1..2"])
def test_nonsense_is_refused(text: str) -> None:
    for parse in (units.parse_size, units.parse_duration):
        with pytest.raises(ValueError):
            parse(text)


@given(st.integers(0, 2**50))
def test_sizes_are_short(count: int) -> None:
    assert len(units.size(count)) <= 12


def test_no_control_characters_reach_the_terminal() -> None:
    assert printable("a\x1b[31m\nb") == "a?[31m?b"


@pytest.mark.parametrize(
    ("arguments", "given_settings", "command"),
    [
        (["--", "a"], {}, ["a"]),
        (["a", "-v", "--store"], {}, ["a", "-v", "--store"]),
        (["--store", "s", "a"], {"store": "s"}, ["a"]),
        (["--store=s=t", "--", "--", "b"], {"store": "s=t"}, ["--", "b"]),
        (
            ["-q", "-v", "--strict", "--no-frozen", "x"],
            {"quiet": True, "verbose": True, "strict": True, "frozen": False},
            ["x"],
        ),
        (["--keep-room", "--"], {"keep-room": True}, []),
    ],
)
def test_options_of_run_end_where_the_command_begins(
    arguments: list[str], given_settings: dict[str, object], command: list[str]
) -> None:
    assert run.parse(arguments) == (given_settings, command)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--stroe", "x"], "--store"),
        (["--store"], "--store: expected one argument"),
        (["--strict=1", "x"], "--strict/--no-strict: ignored explicit argument"),
        (["-z"], "unrecognized arguments: -z"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        run.parse(arguments)
    assert said in caught.value.line()


def test_result_and_progress_come_back() -> None:
    seen: list[tuple[int, int]] = []

    def work(report: bounded.Report) -> object:
        report(1, 2)
        report(2, 2)
        return {"list": [1, ("a", b"b")], "none": None}

    answer = bounded.call(work, 60, lambda done, total: seen.append((done, total)))
    assert answer == {"list": [1, ("a", b"b")], "none": None}
    assert seen == [(1, 2), (2, 2)]


def test_records_come_back_as_what_they_were() -> None:
    """From a helper, and from a file of JSON: at any depth, with lists and tuples told apart."""
    filled = Filled(Address("main", "triton", "any", "KEY"), "w", 7, ("a", "b"), "add", 1.5, 9)
    there: dict[str, object] = {"one": [FillResult((filled,), (), "", ("x",))], "none": (), "empty": {}}
    answer = bounded.call(lambda _: there, 60)
    assert answer == there
    assert answer["one"][0].filled[0].names == ("a", "b")
    written = json.loads(json.dumps(records.plain(there)))
    assert records.real(written) == there
    assert type(records.real(written)["one"][0]) is FillResult


@pytest.mark.parametrize(
    "bad",
    [
        [],
        ["os:system", "true"],
        ["ondol.host.command:run", []],
        ["ondol.none:X"],
        ["ondol.errors:OndolError"],
        [2, "a"],
    ],
)
def test_note_that_names_anything_but_a_record_calls_nothing(bad: object) -> None:
    with pytest.raises(ValueError):
        records.real(bad)


def test_large_result_passes_the_pipe() -> None:
    assert len(bounded.call(lambda _: "x" * 10_000_000, 60)) == 10_000_000


def test_errors_keep_their_kind_and_parts() -> None:
    def work(_: bounded.Report) -> None:
        raise errors.StoreMissing("what", because="why", hint="type this")

    with pytest.raises(errors.StoreMissing) as caught:
        bounded.call(work, 60)
    assert caught.value.line() == "what: why (fix: type this)"


def test_crash_of_the_helper_does_not_take_the_job_with_it() -> None:
    with pytest.raises(errors.OndolError, match="SIGKILL"):
        bounded.call(lambda _: os.kill(os.getpid(), signal.SIGKILL), 60)
    with pytest.raises(errors.OndolError, match="status 3"):
        bounded.call(lambda _: os._exit(3), 60)


def test_bug_in_the_helper_names_its_place() -> None:
    with pytest.raises(errors.OndolError, match=r"ZeroDivisionError.*test_small_things\.py"):
        bounded.call(lambda _: 1 / 0, 60)


def test_answer_that_came_while_we_were_stopped_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    others = set(proctree.children(os.getpid()))

    def clock() -> float:
        """We stand still from when we begin to listen until long after the helper has ended."""
        asked.append(0.0)
        if len(asked) == 1:
            return 0.0
        for helper in {*proctree.children(os.getpid())} - others:
            with suppress(ChildProcessError):  # it was waited for since
                os.waitid(os.P_PID, helper, os.WEXITED | os.WNOWAIT)
        return 1000.0

    monkeypatch.setattr(bounded, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    assert bounded.call(lambda _: "done in time", 60) == "done in time"


def test_helper_that_talks_for_ever_is_not_heard_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is up after its first words, and whenever we look there is something more to hear."""
    times = iter([0.0, 0.0])
    monkeypatch.setattr(bounded, "time", SimpleNamespace(monotonic=lambda: next(times, 1000.0), sleep=time.sleep))
    reading, writing = os.pipe()
    asked, asking = os.pipe()

    def talk(report: bounded.Report) -> None:
        while True:
            report(1, 2)
            os.write(writing, b".")
            os.read(asked, 1)  # else there would be hundreds to hear at once, on a machine that lets it run ahead

    def hear(_done: int, _total: int) -> None:
        heard.append(1)
        assert len(heard) < 100, "it is still listened to"
        os.write(asking, b".")
        for _ in range(1 if heard[1:] else 2):  # one more report is on its way
            os.read(reading, 1)

    heard: list[int] = []
    with pytest.raises(bounded.TimedOut):
        bounded.call(talk, 60, hear)
    for end in (reading, writing, asked, asking):
        os.close(end)


def test_helper_that_hangs_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    asked: list[float] = []

    def clock() -> float:
        """The time is up as soon as the helper's child is there."""
        asked.append(0.0)
        if len(asked) == 1:
            return 0.0
        select.select([reading], [], [])
        return 60.0

    def hang(_: bounded.Report) -> None:
        if os.fork() == 0:
            os.write(writing, b"child")
        signal.pause()

    monkeypatch.setattr(bounded, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    with pytest.raises(bounded.TimedOut):
        bounded.call(hang, 60)
    os.close(writing)
    text = b""
    while data := os.read(reading, 100):  # ends only when both processes are gone
        text += data
    assert text == b"child"
    os.close(reading)


@given(st.lists(st.integers(), max_size=40), st.integers(1, 5))
def test_parallel_keeps_order(pieces: list[int], processes: int) -> None:
    assert bounded.in_parallel([str(p) for p in pieces], lambda p: p + "!", processes, 60) == [f"{p}!" for p in pieces]


def test_a_dead_process_is_told_from_a_living_one() -> None:
    me = process.myself()
    assert process.Owner.decode(me.encode()) == me
    assert not process.certainly_dead(me)
    child = os.fork()
    if child == 0:
        os._exit(0)
    gone = process.Owner(child, process.start_time(child), me.boot, me.namespace)
    os.waitpid(child, 0)
    assert process.certainly_dead(gone)
    assert process.Owner.decode(b"") is None
    assert process.Owner.decode(b"x\ny\nz\nw\n") is None


def test_marker_is_read_however_it_is_spaced_and_never_in_a_format_to_come(tmp_path: Path) -> None:
    marker.create(str(tmp_path), marker.Writers(), shared=False)
    path = tmp_path / marker.NAME
    root = os.open(tmp_path, os.O_RDONLY)
    short = marker.read(root, "x")
    written = path.read_text()
    path.write_text(json.dumps(json.loads(written), indent=2))
    assert marker.read(root, "x") == short
    path.write_text(written.replace(short.identity, 'a", "writers": {"any": true}, "id": "b'))
    assert marker.read(root, "x").writers == marker.Writers()  # the last of two keys counts, and it names nobody
    path.write_text(written.replace('"format": 1', '"format": 9'))
    with pytest.raises(errors.StoreError, match="format"):
        marker.read(root, "x")
    os.close(root)


@pytest.mark.parametrize("home", [None, "", "/", "relative", "/no/such/home"])
def test_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    """Without a usable HOME the user database is asked, and for a user that it does not know there is still a place."""
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    monkeypatch.setattr(identity, "account", lambda _uid: None)
    assert identity.user_cache_dir() == f"/var/tmp/ondol-{os.geteuid()}"


def test_user_database_is_asked_only_when_it_must_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def asked(_uid: int) -> None:
        raise AssertionError("nobody needs to know")

    monkeypatch.setattr(identity, "account", asked)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert identity.user_cache_dir() == str(tmp_path / ".cache")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert identity.user_cache_dir() == "/elsewhere"


def test_two_compilers_do_not_look_the_same(tmp_path: Path) -> None:
    for name in ("g++-12", "g++-13"):
        (tmp_path / name).write_text(name * len(name))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "g++").symlink_to("g++-12")
    env = {"PATH": str(tmp_path)}
    assert identity.compiler(env) == f"{tmp_path / 'g++-12'} 36"
    assert identity.compiler({**env, "CXX": "g++-13 -pipe"}) == f"{tmp_path / 'g++-13'} 36"
    for nothing in ({"PATH": "/no/such"}, {**env, "CXX": " "}, {**env, "CXX": "/no/such"}):
        assert identity.compiler(nothing) == ""


def test_links_of_the_command_itself_are_repeated(tmp_path: Path) -> None:
    """Only what Ondol made: a link that a command left in its TMPDIR leads anywhere."""
    here = room.open_room(str(tmp_path), keeps_atime=True)
    here.link_below_tmp("torchinductor_ada", "inductor")
    os.symlink("/etc", os.path.join(here.tmp, "theirs"))
    assert room.links(here.env()) == {"torchinductor_ada": here.cache_dir("inductor")}
    assert room.links({}) == {}
    assert room.links({room.VARIABLE: "/no/such"}) == {}
    here.close()


def test_what_is_no_plain_file_is_not_searched(tmp_path: Path) -> None:
    """A link leads out of the cache, and a FIFO that somebody planted hangs its reader."""
    (tmp_path / "real").write_bytes(b"the name is here")
    (tmp_path / "link").symlink_to("real")
    os.mkfifo(tmp_path / "fifo")
    cache = CacheDir(str(tmp_path), ours=True)
    assert cache.search("", "real", re.compile(rb"name (is)")) == b"is"
    assert cache.search("", "real", re.compile(rb"(nowhere)")) == b""
    for name in ("link", "fifo"):
        with pytest.raises(OSError, match=name):
            cache.search("", name, re.compile(rb"name (is)"))
