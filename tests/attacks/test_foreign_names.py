"""Names and numbers that others chose: too long, not ASCII, huge, or a link to somewhere else."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from handmade import elf, make_entry, trust_everybody
from ondol.errors import PackError
from ondol.foreign_text import is_number
from ondol.guard.lock import Holder
from ondol.host import process, zstd
from ondol.room import choose, fill, room
from ondol.store import pack
from ondol.store.directory import DirectoryStore
from ondol.store.entry import Entry, File
from ondol.tools.api import CacheDir
from ondol.tools.triton import Triton
from people import ROOT, Program

pytestmark = pytest.mark.warm

#: Each is a number for one of Python's own tests for such, and for `int` it is none, or too much.
NUMBERS = ("²", "1²", "٣", "①", "9" * 5000, "9" * 18 + "²", "-1", "+1", "1_0", " 1", "")


@pytest.mark.parametrize("text", NUMBERS)
def test_odd_number_is_none(text: str) -> None:
    assert not is_number(text)


@given(st.text(max_size=30))
def test_whatever_is_a_number_can_be_taken_as_one(text: str) -> None:
    if is_number(text):
        assert str(int(text)).zfill(len(text)) == text


def test_only_one_place_asks_what_a_number_is() -> None:
    """`str.isdigit` says yes to what `int` refuses; whoever needs to know asks `foreign_text.is_number`."""
    asking = [
        f"{path.name}:{number}"
        for path in (ROOT / "src").rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\bis(?:digit|decimal|numeric)\b", line) and path.name != "foreign_text.py"
    ]
    assert asking == []


@pytest.mark.parametrize("pid", ["²", "٣", "9" * 5000, "9" * 18, "1" * 12])
def test_note_of_a_process_that_cannot_be_is_no_note(pid: str) -> None:
    """Two thousand million and more is no pid: asking the kernel about it is an `OverflowError`."""
    note = f"{pid}\n1\n{process.boot_id()}\n{process.pid_namespace()}\n".encode()
    assert process.Owner.decode(note) is None
    assert process.Owner.decode(f"{pid} 1 2 3".encode()) is None
    assert Holder.decode(note + b"host\n1\ncommand\n\n") is None


def test_table_of_ranks_that_makes_no_sense_shares_nothing() -> None:
    env = {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0"}
    for table, node in (("²", "0"), ("2(x²)", "0"), ("2", "²"), ("9" * 5000, "0"), ("2", "9" * 5000)):
        assert choose.share_key("auto", {**env, "SLURM_STEP_TASKS_PER_NODE": table, "SLURM_NODEID": node}) == ""


def test_odd_names_everywhere_in_a_lane_are_passed_over(
    store: DirectoryStore, store_path: Path, program: Program
) -> None:
    """Every command and every reader passes them over."""
    entry = make_entry(1)
    store.publish([(entry.address, pack.encode(entry))])
    store.note_use([entry.address])
    (lane,) = (store_path / "lanes").iterdir()
    odd = ["²", "٣", "a\nb", "\x1b[2J", "::error::x", "..x", "-rf", "x" * 255, "\udcff"]
    for folder in (store_path / "lanes", lane, lane / "usage", lane / "tmp", lane / "main", lane / "main" / "triton"):
        for name in odd:
            os.mkdir(os.path.join(folder, name))
    for name in odd:
        (lane / "main" / "triton" / "any" / f"{name[:240]}.pack").write_bytes(b"")
        (lane / "usage" / f"{name[:100]}1").write_text("main/triton/any/²")
    assert [stored.address for stored in store.index("triton", ["main"])] == [entry.address]
    assert [stored.address for stored in store.everything()] == [entry.address]
    assert set(store.last_uses()) == {entry.address}
    for command in (["ls"], ["stats"], ["verify"], ["gc", "--max-size", "1G"], ["show", entry.address.key]):
        done = program.ondol("store", *command, "--store", str(store_path))
        assert (done.returncode, "Traceback" in done.stderr, "\x1b" in done.stdout) == (0, False, False), done.stderr
    assert len(DirectoryStore(str(store_path), trust_everybody).index("triton", ["main"])) == 1


def entry_of(*names: str, number: int = 1) -> Entry:
    group = b'{"child_paths": {"k.cubin": "k.cubin"}}'
    base = make_entry(number)
    own = (File("k.cubin", False, elf(b"code")), File("__grp__k.json", False, group))
    return base._replace(files=(*own, *(File(name, False, b"x") for name in names)))


def fill_room(store: DirectoryStore, place: Path) -> fill.FillResult:
    for name in ("cache", "stage"):
        (place / name).mkdir()
    wanted = [[stored] for stored in store.index("triton", ["main"])]
    cache, stage = CacheDir(str(place / "cache"), ours=True), str(place / "stage")
    return fill.fill(store, Triton(), wanted, cache, stage, lambda _done, _total: None, 1, 60.0)


def test_name_that_no_file_system_takes_is_a_bad_pack(
    store: DirectoryStore, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such pack stopped the whole fill."""
    with pytest.raises(PackError):
        pack.encode(entry_of("n" * 300))
    with monkeypatch.context() as patch:
        patch.setattr(pack, "check_name", lambda name: name)
        hostile = pack.encode(entry_of("n" * 300, number=0))
    good = [entry_of(number=number) for number in (1, 2, 3)]
    store.publish([(entry_of(number=0).address, hostile), *((e.address, pack.encode(e)) for e in good)])
    result = fill_room(store, tmp_path)
    assert (len(result.filled), len(result.bad), result.stopped) == (3, 1, "")


def test_name_that_this_file_system_does_not_take_costs_one_entry(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encrypting file system takes 143 bytes; and a name may be in the way of another entry's folder."""
    entries = [entry_of("x" * 200 if number == 1 else "x", number=number) for number in range(4)]
    store.publish([(entry.address, pack.encode(entry)) for entry in entries])
    real = os.open

    def refuse(name: str, *arguments: int, **options: int) -> int:
        if len(str(name)) == 200:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    result = fill_room(store, tmp_path)
    assert (len(result.filled), len(result.unfit), result.stopped) == (3, 1, "")


@pytest.mark.parametrize("length", [1, 52, 200])
def test_bad_pack_with_the_longest_names_is_set_aside(store_path: Path, length: int) -> None:
    """A name of 255 bytes and more for what is set aside left the bad pack where it was, and its key cold for ever."""
    entry = make_entry(1)
    entry = entry._replace(address=entry.address._replace(tool="t" * length, key="k" * length))
    store = DirectoryStore(str(store_path), trust_everybody)
    store.publish([(entry.address, pack.encode(entry))])
    (path,) = store_path.rglob("*.pack")
    path.chmod(0o600)
    path.write_bytes(b"rotten")
    assert store.publish([(entry.address, pack.encode(entry))])[0].new
    (stored,) = store.everything()
    assert pack.decode(store.fetch(stored), stored.address) == entry
    assert store.set_aside(stored)
    assert list(store.everything()) == []
    assert len(list(store_path.glob("lanes/*/quarantine/*"))) == 2


def test_members_of_a_room_are_never_looked_for_through_a_link(tmp_path: Path) -> None:
    """`ondol gc` as root opened whatever a user's `members` led to: a tape, a watchdog."""
    here = room.open_room(str(tmp_path), keeps_atime=True)
    outside = tmp_path / "devices"
    outside.mkdir()
    os.mkfifo(outside / "device")
    (Path(here.path) / "members").symlink_to(outside)
    script = f"from ondol.room import room; print(room.is_over({here.path!r}))"
    log = tmp_path / "log"
    command = ["strace", "-f", "-o", str(log), "-e", "trace=openat,open", sys.executable, "-c", script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("needs strace")
    assert done.stdout.strip() == "False", done.stderr
    assert "device" not in log.read_text().replace("/sys/devices", "")


# -- frames -----------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=3000), st.integers(1, 19), st.booleans(), st.integers(1, 300))
def test_end_of_a_frame_is_where_the_compressor_ended_it(data: bytes, level: int, checksum: bool, times: int) -> None:
    raw = data * times
    frame = zstandard.ZstdCompressor(level=level, write_checksum=checksum).compress(raw)
    assert zstd.end_of(zstd.read_frame(frame), frame + b"more") == len(frame)
    for cut in {1, len(frame) // 3, len(frame) - 1}:
        with pytest.raises(zstd.ZstdError):
            zstd.end_of(zstd.read_frame(frame[:cut]), frame[:cut])
