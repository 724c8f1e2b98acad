"""What a job, or a stranger, leaves behind costs the host that looks at it its memory or its time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from handmade import key_of, write_triton_entry
from ondol.errors import OndolError
from ondol.explain.junit_log import JUnitLog
from ondol.guard import healing
from ondol.guard.pip import Pip
from ondol.host import bounded, identity, process
from ondol.room import room as rooms
from ondol.tools import registry
from ondol.tools.api import MAX_METADATA_BYTES, CacheDir, Refused
from people import Program

#: Prints the peak memory, in bytes, of a command and what it waited for; its own output goes to standard error.
PEAK = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""
#: A group file of 40 MB, which parses into a gigabyte.
LEAVE = f"""
import os
folder = os.path.join(os.environ["TRITON_CACHE_DIR"], "{key_of(1)}")
os.makedirs(folder)
with open(os.path.join(folder, "__grp__add.json"), "w") as file:
    file.write('{{"child_paths": [')
    for _ in range(40):
        file.write("[]," * 333_333)
    file.write("[]]}}")
"""


def small() -> int:
    """A little more than this process has already: the limit counts that too, and who ran many tests has much."""
    (has,) = re.findall(r"^VmData:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return (int(has) << 10) + (64 << 20)


def test_giant_group_file_in_a_room_costs_little_memory(program: Program, store_path: Path) -> None:
    words = ["run", "--store", str(store_path), "--tools", "triton", "-v", "--", sys.executable, "-c", LEAVE]
    done = program.run([sys.executable, "-c", PEAK, sys.executable, "-m", "ondol", *words])
    status, peak = map(int, done.stdout.split())
    assert status == 0, done.stderr
    assert peak < 200 << 20, peak
    assert "1 unfit" in done.stderr


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("triton", f"{key_of(1)}/__grp__add.json"),
        ("vllm", "modelinfos/x.json"),
    ],
)
def test_giant_metadata_is_not_parsed(tool: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    with open(path, "wb") as file:
        file.truncate(MAX_METADATA_BYTES + 1)  # which would be read, were it not for its size
    found = list(
        registry.load(registry.choose([tool])[0]).scan(CacheDir(str(tmp_path), ours=True), identity.this_host())
    )
    assert all(isinstance(item, Refused) for item in found)


def test_helper_that_takes_all_memory_is_ended() -> None:
    with pytest.raises(OndolError, match="memory"):
        bounded.call(lambda _report: len(bytearray(1 << 30)), 60, memory=small())
    assert bounded.call(lambda _report: len(bytearray(8 << 20)), 60, memory=small()) == 8 << 20


@pytest.mark.parametrize("bucket", ["http-v2", "http"])
def test_sparse_file_in_pips_cache_costs_little_memory(tmp_path: Path, bucket: str) -> None:
    folder = tmp_path / bucket / "6" / "2"
    folder.mkdir(parents=True)
    with open(folder / "giant", "wb") as file:
        file.write(b"cc=4,")
        file.truncate(3 << 30)
    found = bounded.call(
        lambda _: [tuple(bad) for bad in Pip().examine(str(tmp_path), lambda *_: None)], 60, None, small()
    )
    assert found == []


def test_cache_that_needs_too_much_memory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "http-v2").mkdir()
    monkeypatch.setattr(healing, "_LOOKING_MEMORY", small())
    monkeypatch.setattr(Pip, "examine", lambda *_: iter([bytearray(1 << 30)]))
    report = healing.heal("pip", healing.Unlocked(str(tmp_path)), lambda *_: None)
    assert "memory" in report.why_not
    assert report.taken == ()


def test_giant_attribute_in_a_junit_file_is_given_up_early() -> None:
    """Each chunk that did not end the tag was read again from its beginning: 200 MB took minutes."""
    fed = 0

    def chunks() -> object:
        nonlocal fed
        yield b'<testsuite><testcase name="early"><failure>x</failure></testcase><testcase name="'
        for _ in range(200 << 20 >> 16):
            fed += 1 << 16
            yield b"x" * (1 << 16)

    log = JUnitLog(chunks())  # type: ignore[arg-type]
    list(log.parts())
    assert "longer than" in log.trouble
    assert [test.name for test in log.failed()] == ["early"]
    assert fed <= 8 << 20, "the rest is not even looked at"


def old_room(base: Path, owner: process.Owner, age: float) -> Path:
    path = base / f"{rooms.PREFIX}{os.geteuid()}-{'0' * 32}"
    path.mkdir(mode=0o700)
    (path / "owner").write_bytes(owner.encode())
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_room_without_a_boot_id_is_in_use_until_it_is_old(tmp_path: Path) -> None:
    """Written where there was no /proc: nothing can prove that its process is over, so time must."""
    unknown = process.Owner(os.getpid(), "", "", "")
    young = old_room(tmp_path, unknown, 3600.0)
    assert not rooms.is_over(str(young))
    os.utime(young, (0, time.time() - rooms.OPEN_AGE - 60))
    assert rooms.is_over(str(young))
    (young / "owner").write_bytes(process.myself().encode())
    os.utime(young, (0, time.time() - rooms.OPEN_AGE - 60))
    assert not rooms.is_over(str(young)), "its owner is certainly alive"


def test_harvest_beside_a_giant_still_publishes(program: Program, store_path: Path) -> None:
    standin = f"import subprocess, sys\n{LEAVE}\nsubprocess.run([sys.executable, {str(program.programs / 'standin.py')!r}, 'good'])"
    words = ["run", "--store", str(store_path), "--tools", "triton", "--", sys.executable, "-c", standin]
    done = program.run([sys.executable, "-m", "ondol", *words])
    assert "1 published" in done.stderr, done.stderr


def test_adopting_beside_a_giant_takes_the_others(program: Program, store_path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    write_triton_entry(cache, 2)
    subprocess.run([sys.executable, "-c", LEAVE], env={"TRITON_CACHE_DIR": str(cache)}, check=True)
    done = program.ondol("store", "adopt", str(cache), "--tool", "triton", "--store", str(store_path))
    assert "adopted 1 entry" in done.stdout, done.stdout + done.stderr
    assert "unfit" in done.stdout
