"""What is bad and what is not, by the evidence of the cache itself; and taking it out without touching its neighbours."""

from __future__ import annotations

import csv
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ondol.guard import guarded_command, healing, msgpack, set_aside, wheel_record
from ondol.guard.healer import BadEntry, launched
from ondol.guard.healing import HEALERS
from ondol.guard.lock import Holder, command_line
from ondol.guard.uv import Uv, _is_whole
from ondol.host import process
from uv_caches import a_lock, make_uv_cache


def quiet(_done: int, _total: int) -> None:
    """Progress that nobody looks at."""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_uv_cache(tmp_path)


def bad_in(cache: Path) -> list[tuple[str, str]]:
    found = Uv().examine(str(cache), quiet)
    return sorted((os.path.relpath(one.path, cache), one.why) for one in found)


def test_healthy_cache_is_not_called_bad(cache: Path) -> None:
    assert bad_in(cache) == []


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("alpha/data.bin", None, "alpha/data.bin is missing"),
        ("alpha/data.bin", b"short", "alpha/data.bin has 5 bytes instead of 10240"),
        ("alpha/data.bin", b"\0" * 10240, "alpha/data.bin is not what RECORD says"),
        ("alpha-1.0.dist-info/METADATA", None, "METADATA is missing"),
        ("alpha-1.0.dist-info/METADATA", b"", "alpha-1.0.dist-info/METADATA has 0 bytes instead of 47"),
        ("alpha-1.0.dist-info/WHEEL", None, "WHEEL is missing"),
        ("alpha-1.0.dist-info/RECORD", None, "RECORD is missing"),
        ("alpha-1.0.dist-info/RECORD", b"", "RECORD is empty or cut off"),
        ("alpha-1.0.dist-info/RECORD", b"alpha/__init__.py,sha256=aaaa,1\n", "RECORD is empty or cut off"),
    ],
)
def test_damage_of_every_kind_is_found(cache: Path, name: str, content: bytes | None, why: str) -> None:
    path = cache / "archive-v0" / "id-of-alpha" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert bad_in(cache) == [("archive-v0/id-of-alpha", f"{why} (alpha-1.0)")]


def test_names_that_lead_to_something_bad_go_with_it(cache: Path) -> None:
    """Links and the files that name it; also where the link itself is gone. Its metadata is not a name."""
    (cache / "archive-v0" / "id-of-alpha" / "alpha" / "data.bin").unlink()
    folder = cache / "wheels-v7" / "index" / "an-index" / "alpha"
    (found,) = Uv().examine(str(cache), quiet)
    assert found.pointers == tuple(str(folder / name) for name in ("1.0-py3-none-any", "1.0-py3-none-any.http"))
    (folder / "1.0-py3-none-any").unlink()
    (found,) = Uv().examine(str(cache), quiet)
    assert found.pointers == (str(folder / "1.0-py3-none-any.http"),)


def test_record_that_leads_outside_is_not_followed(cache: Path) -> None:
    info = cache / "archive-v0" / "id-of-alpha" / "alpha-1.0.dist-info"
    with (info / "RECORD").open("a") as file:
        file.write("/etc/passwd,sha256=aaaa,1\n../id-of-beta/beta/data.bin,sha256=aaaa,1\n")
    assert bad_in(cache) == []


@pytest.mark.parametrize("damage", [b"", b"\x92\xb5cut", b"\x92\xa3abc\x90 policy that ends here"])
def test_torn_pointer_is_found(cache: Path, damage: bytes) -> None:
    path = cache / "wheels-v7" / "index" / "an-index" / "beta" / "1.0-py3-none-any.http"
    path.write_bytes(damage)
    assert [found for found, _ in bad_in(cache)] == [os.path.relpath(path, cache)]


def test_format_of_another_version_is_not_called_torn(cache: Path) -> None:
    """A uv of next year may write its pointers otherwise: then all of them look torn, and none of them is."""
    for path in cache.glob("wheels-v7/**/*.*"):
        if path.suffix in (".http", ".msgpack"):
            path.write_bytes(b"\xc1 something new in " + path.name.encode())
    assert bad_in(cache) == []


@pytest.mark.parametrize("version", ["0.4 to 0.12", "0.13"])
def test_both_forms_of_a_pointer(version: str) -> None:
    value, policy = b"\x92\xa3abc\x90", b"p" * 30
    length = len(policy) if version == "0.4 to 0.12" else len(value)
    assert _is_whole(value + policy + length.to_bytes(8, "little"))
    assert not _is_whole((value + policy + length.to_bytes(8, "little"))[:-1])
    assert _is_whole(value)


def test_archive_that_nothing_leads_to_is_not_called_bad(cache: Path) -> None:
    """It may be something else, or still in the making."""
    (cache / "archive-v0" / "unknown").mkdir()
    (cache / "archive-v0" / "unknown" / "file").write_text("")
    assert bad_in(cache) == []


def test_directory_that_is_no_cache_of_the_family_is_not_searched(tmp_path: Path) -> None:
    assert not any(healer.recognises(str(tmp_path)) for healer in HEALERS.values())
    assert healing.family_of(str(tmp_path)) == ""
    lock = a_lock(tmp_path)
    healed = healing.heal("uv", lock, lambda *_: None)
    lock.release()
    assert healed.why_not == f"{tmp_path} is not a cache of uv"


def test_uv_processes_do_not_lose_what_they_are_reading(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain uv has its own lock: then only the names go, so that nobody new is led there, and it can finish."""
    monkeypatch.setattr(healing, "TOOL_WAIT", 0.2)
    damaged = cache / "archive-v0" / "id-of-alpha"
    (damaged / "alpha" / "data.bin").unlink()
    lock = a_lock(cache)
    with (cache / ".lock").open("r+") as neighbour:
        fcntl.flock(neighbour, fcntl.LOCK_SH)
        healed = healing.heal("uv", lock, lambda *_: None)
    assert healed.mended
    assert damaged.is_dir()
    assert not (cache / "wheels-v7/index/an-index/alpha/1.0-py3-none-any").is_symlink()
    healed = healing.heal("uv", lock, lambda *_: None)
    lock.release()
    assert healed.mended
    assert not damaged.exists()


def test_entry_that_was_mended_meanwhile_is_left(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking and taking, a plain uv has put a whole entry in the bad one's place."""
    archive, old = cache / "archive-v0" / "id-of-alpha", cache / "old"
    module = archive / "alpha" / "data.bin"
    data = module.read_bytes()
    module.unlink()
    examine = Uv.examine

    def and_then_mend(self: Uv, path: str, progress: object) -> Iterator[BadEntry]:
        yield from list(examine(self, path, quiet))
        archive.rename(old)
        archive.mkdir()
        for name in os.listdir(old):
            (old / name).rename(archive / name)
        module.write_bytes(data)

    monkeypatch.setattr(Uv, "examine", and_then_mend)
    lock = a_lock(cache)
    healing.heal("uv", lock, lambda *_: None)
    lock.release()
    assert module.exists()


def test_whole_cache_goes_only_when_asked_for(cache: Path) -> None:
    """Nothing is bad, so nothing goes; with `whole` everything does but the directory, and the locks in it."""
    lock = a_lock(cache)
    identity = cache.stat().st_ino
    assert not healing.heal("uv", lock, lambda *_: None).taken
    healed = healing.heal("uv", lock, lambda *_: None, whole=True)
    lock.release()
    assert sorted(one.path for one in healed.taken) == ["archive-v0", "wheels-v7"]
    assert (os.listdir(cache), cache.stat().st_ino) == ([".lock"], identity)
    assert (Path(healed.folder) / "archive-v0" / "id-of-alpha" / "alpha" / "data.bin").exists()


def test_whole_takes_no_more_where_something_finer_is_known(cache: Path) -> None:
    (cache / "archive-v0" / "id-of-alpha" / "alpha" / "data.bin").unlink()
    lock = a_lock(cache)
    healed = healing.heal("uv", lock, lambda *_: None, whole=True)
    lock.release()
    assert [one.path for one in healed.taken] == ["archive-v0/id-of-alpha"]


def test_what_was_set_aside_does_not_pile_up(cache: Path) -> None:
    base = cache.parent / f".cache.ondol-aside-{os.geteuid()}"
    now = 1_800_000_000.0
    for number in range(set_aside.MOST + 5):
        place = set_aside.SetAside(str(cache), now + number)
        (cache / "file").write_text("")
        place.take(str(cache / "file"), set_aside.identity_of(str(cache / "file")))
        place.clean()
    assert len(list(base.iterdir())) == set_aside.MOST
    place = set_aside.SetAside(str(cache), now + set_aside.LONGEST + 1000)
    (cache / "file").write_text("")
    place.take(str(cache / "file"), set_aside.identity_of(str(cache / "file")))
    place.clean()
    assert [path.name for path in base.iterdir()] == [os.path.basename(place.folder)]


def test_link_planted_where_things_are_set_aside_is_not_followed(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (cache.parent / f".cache.ondol-aside-{os.geteuid()}").symlink_to(elsewhere)
    place = set_aside.SetAside(str(cache), 0.0)
    place.take(str(cache / ".lock"), set_aside.identity_of(str(cache / ".lock")))
    assert list(elsewhere.iterdir()) == []
    assert place.folder.startswith(f"{cache}/.ondol-aside-")


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=300)
                    | st.text(max_size=70) | st.floats(allow_nan=False), lambda inner: st.lists(inner, max_size=20)
                    | st.dictionaries(st.text(max_size=5), inner, max_size=20), max_leaves=20))  # fmt: skip
def test_messagepack_is_read_as_it_was_written(value: object) -> None:
    data = pack(value)
    assert msgpack.decode(data) == (value, len(data))
    for end in range(len(data)):
        with pytest.raises(ValueError):
            msgpack.decode(data[:end])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_do_not_break_the_reader(data: bytes) -> None:
    try:
        assert msgpack.decode(data)[1] <= len(data)
    except ValueError:
        pass
    try:
        wheel_record.parse(data)
    except csv.Error:
        pass


def pack(value: object) -> bytes:
    """The shortest that a real writer would choose is not needed: any valid form is."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return struct.pack("b", value) if -32 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, bytes):
        return (b"\xc4" + bytes([len(value)]) if len(value) < 256 else b"\xc5" + struct.pack(">H", len(value))) + value
    if isinstance(value, str):
        text = value.encode()
        return (bytes([0xA0 + len(text)]) if len(text) < 32 else b"\xda" + struct.pack(">H", len(text))) + text
    if isinstance(value, list):
        head = bytes([0x90 + len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))
        return head + b"".join(map(pack, value))
    assert isinstance(value, dict)
    head = bytes([0x80 + len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
    return head + b"".join(pack(key) + pack(one) for key, one in value.items())


@pytest.mark.parametrize(
    ("argv", "name", "expected"),
    [
        (["uv", "sync"], "uv", ["uv"]),
        (["/opt/bin/uv"], "uv", ["/opt/bin/uv"]),
        (["python3.12", "-m", "uv", "sync"], "uv", ["python3.12", "-m", "uv"]),
        (["pip3.11", "install"], "pip", ["pip3.11"]),
        (["pipx", "install"], "pip", []),
        (["python3", "-m", "pipx"], "pip", []),
        ([], "uv", []),
    ],
)
def test_command_is_not_taken_for_another(argv: list[str], name: str, expected: list[str]) -> None:
    assert launched(argv, name) == expected


def test_cache_that_the_command_names_is_guarded(tmp_path: Path) -> None:
    assert guarded_command.cache_of(["uv", "--cache-dir", "/a/b", "sync"], {}) == "/a/b"
    assert guarded_command.cache_of(["pip", "install", "--cache-dir=/a/b", "x"], {}) == "/a/b"
    assert guarded_command.cache_of([f"{tmp_path}/uv", "sync"], {"UV_CACHE_DIR": "/c"}) == "/c"
    assert guarded_command.cache_of([f"{tmp_path}/pip"], {"PIP_CACHE_DIR": "/d"}) == "/d"


def test_no_passwords_in_the_note_for_those_who_wait() -> None:
    assert (
        command_line(["uv", "--index-url", "https://ci:secret@index/simple"]) == "uv --index-url https://…@index/simple"
    )
    note = Holder(process.myself(), "host\nname", 12.0, "uv\nsync", "job\n1")
    assert Holder.decode(note.encode()) == note._replace(host="host name", command="uv sync", job="job 1")
    assert Holder.decode(b"") is None
    assert Holder.decode(b"1\n2\n3\n4\nhost") is None
    assert note._replace(command="\033[31mred").text(12.0).isprintable()
