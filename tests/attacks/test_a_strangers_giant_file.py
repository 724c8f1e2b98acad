"""Files as no pack or note can be: sparse, enormous, dated ahead. They must cost their neighbours nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from handmade import key_of, make_entry, trust_everybody
from ondol.store import check, gc, gc_plan, marker, pack, usage
from ondol.store.directory import DirectoryStore
from people import Program, needs_root

pytestmark = pytest.mark.warm

STRANGER = 12345
IN_2037 = 2_130_000_000
DAY = 86400


def bytes_read() -> int:
    """What this process has asked the kernel for so far, by the kernel's own count."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(file.readline().split()[1])


def plant(lane: Path, name: str, size: int, owner: int | None = None, mode: int = 0o444) -> Path:
    """A file of this size and no contents."""
    lane.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
    with open(lane / name, "wb") as file:
        file.truncate(size)
    (lane / name).chmod(mode)
    if owner is not None:
        for path in [lane, *lane.rglob("*")]:
            os.chown(path, owner, owner or -1, follow_symlinks=False)
    return lane / name


def publish(store: DirectoryStore, *numbers: int) -> None:
    store.publish([(make_entry(number).address, pack.encode(make_entry(number))) for number in numbers])


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [None, 2001])
def test_sparse_terabyte_of_2037_costs_no_honest_entry(
    public: Path, tmp_path: Path, program: Program, uid: int | None
) -> None:
    """`gc --max-size 20GiB`, by root, and by an ordinary user who may not remove what the stranger left."""
    path = public / tmp_path.name / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    assert program.job(path, "a", "b", uid=uid).compiled == 2
    giant = plant(path / "lanes" / f"{STRANGER}-1", f"main/triton/any/{key_of(1)}.pack", 1 << 40, STRANGER)
    os.utime(giant, (IN_2037, IN_2037))
    done = program.ondol("store", "gc", "--store", str(path), "--max-size", "20GiB", "--json", uid=uid)
    removed = json.loads(done.stdout)["removed"]
    assert [one["entry"] for one in removed] == ([] if uid else [f"main/triton/any/{key_of(1)}"])
    assert program.job(path, "a", "b", uid=uid).hits == 2


@needs_root
@pytest.mark.root
def test_real_gigabytes_of_a_stranger_cost_no_honest_entry(public: Path, tmp_path: Path, program: Program) -> None:
    """Real blocks too: the stranger gives first, and what we may not remove is not paid for with ours."""
    path = public / tmp_path.name / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    program.job(path, "a", uid=2001)
    theirs = plant(path / "lanes" / f"{STRANGER}-1", f"main/triton/any/{key_of(1)}.pack", 0, STRANGER, 0o644)
    theirs.write_bytes(os.urandom(1 << 20))
    for uid, others in ((2001, 1), (None, 0)):
        limit = ("--max-size", "500kB")
        done = program.ondol("store", "gc", "--store", str(path), *limit, uid=uid)
        assert done.returncode == 0
        assert program.job(path, "a", uid=2001).hits == 1
        assert len(list((path / "lanes").glob(f"{STRANGER}-*/main/*/*/*.pack"))) == others


def test_giant_file_in_a_trusted_lane_is_no_entry(store: DirectoryStore, store_path: Path) -> None:
    publish(store, 1)
    (lane,) = (store_path / "lanes").iterdir()
    plant(lane, f"main/triton/any/{key_of(2)}.pack", 1 << 40)
    assert [s.address.key for s in store.index("triton", ["main"])] == [key_of(1)]
    before = bytes_read()
    verified = check.verify(store, lambda _done, _total: None)
    assert bytes_read() - before < 1 << 20
    (finding,) = verified.findings
    assert (finding.kind, finding.set_aside, verified.good) == ("corrupt", True, 1)
    publish(store, 2)
    assert len(store.index("triton", ["main"])) == 2


def test_verify_does_not_read_what_nobody_wrote(store: DirectoryStore, store_path: Path) -> None:
    """Twelve sparse files of legal size took verify 33 seconds, and a gigabyte each."""
    publish(store, 0)
    (lane,) = (store_path / "lanes").iterdir()
    head = pack.encode(make_entry(1))[:8]
    for number in range(1, 13):
        path = plant(lane, f"main/triton/any/{key_of(number)}.pack", 1 << 30, mode=0o644)
        with open(path, "r+b") as file:
            file.write(head + (1).to_bytes(4, "little") + bytes(12) + ((1 << 30) - 68).to_bytes(8, "little"))
        path.chmod(0o444)
    before = bytes_read()
    verified = check.verify(store, lambda _done, _total: None)
    assert bytes_read() - before < 1 << 20
    assert (verified.good, len(verified.findings)) == (1, 12)
    assert all(finding.set_aside and finding.kind == "corrupt" for finding in verified.findings)


@pytest.mark.parametrize("content", [b"", b"a/b/c/d\n", b"main/triton/any/key\n", b"///\n"])
def test_notes_of_use_cost_little_however_large(store: DirectoryStore, store_path: Path, content: bytes) -> None:
    """Forty usage files of 64 MiB took gc 18 seconds."""
    publish(store, 1)
    store.note_use([make_entry(1).address])
    (lane,) = (store_path / "lanes").iterdir()
    today = int(time.time() // DAY)
    size = 15 << 20
    for number in range(1, 41):
        path = plant(lane, f"usage/{today - number}", size if number % 2 else 64 << 20, mode=0o644)
        path.write_bytes(content * (size // len(content)) if content and number < 8 else b"")
        os.truncate(path, size if number % 2 else 64 << 20)
    before = bytes_read()
    uses = store.last_uses()
    assert bytes_read() - before < 100 << 20
    assert make_entry(1).address in uses


def test_lines_that_are_no_notes_are_looked_at_no_longer_than_notes(
    store: DirectoryStore, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB of `///` are sixteen million lines and not one note: were only notes counted, all would be looked at."""
    publish(store, 1)
    (lane,) = (store_path / "lanes").iterdir()
    parsed, looked_at = usage._parsed, []
    monkeypatch.setattr(usage, "_MAX_LINES", 10)
    monkeypatch.setattr(usage, "_parsed", lambda line: looked_at.append(line) or parsed(line))  # type: ignore[func-returns-value]
    plant(lane, f"usage/{int(time.time() // DAY)}", 0, mode=0o644).write_text("///\n" * 1000)
    assert store.last_uses() == {}
    assert len(looked_at) == 10


@pytest.mark.parametrize("day", ["after tomorrow", 99999, "9" * 30, "²", "٣", "1²", "-5", "9" * 200])
def test_note_of_a_day_that_has_not_come_pins_nothing(store: DirectoryStore, store_path: Path, day: object) -> None:
    """Else an entry would stay for ever; and `"²".isdigit()` is true."""
    if day == "after tomorrow":
        day = int(time.time() // DAY) + 2  # now: a run that begins before midnight may come here after it
    publish(store, 1, 2)
    (lane,) = (store_path / "lanes").iterdir()
    pinned = make_entry(1).address
    plant(lane, f"usage/{day}", 0, mode=0o644).write_text("/".join(pinned))
    assert store.last_uses() == {}
    for path in lane.rglob("*.pack"):
        os.utime(path, (1, 1) if pinned.key in path.name else (1000, 1000))
    one = max(len(pack.encode(make_entry(number))) for number in (1, 2))
    result = gc.clean(store, gc_plan.StoreLimits(max_bytes=one), time.time(), dry_run=False)
    assert [removal.stored.address for removal in result.removed] == [pinned]
    assert not list(lane.glob("usage/9*")), "gc forgets notes that are dated ahead"
    assert DirectoryStore(str(store_path), trust_everybody).last_uses() == {}


def test_pack_dated_ahead_is_the_first_to_go(store: DirectoryStore, store_path: Path) -> None:
    publish(store, 1, 2)
    (path,) = store_path.rglob(f"{key_of(1)}.pack")
    os.utime(path, (IN_2037, IN_2037))
    result = gc.clean(store, gc_plan.StoreLimits(max_bytes=path.stat().st_size + 20), time.time(), dry_run=False)
    assert [removal.stored.address.key for removal in result.removed] == [key_of(1)]
