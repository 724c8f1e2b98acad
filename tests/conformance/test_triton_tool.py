"""Triton keeps the tools' contract, and its own traps are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from handmade import elf, key_of, write_triton_entry
from ondol.errors import EntryRefused
from ondol.host import accelerator
from ondol.host.identity import Host
from ondol.testing.tool_suite import HOST, ToolSuite, entries, scan
from ondol.tools.triton import Triton

TRITON = Triton()
HELPER = "cuda_utils.cpython-311-x86_64-linux-gnu.so"


class TestTriton(ToolSuite):
    tool = TRITON

    def make_cache(self, path: Path) -> int:
        write_triton_entry(path, 1)
        write_triton_entry(path, 2, name="matmul", body=b"other code")
        write_helper(path, 3)
        return 3


def write_helper(cache: Path, number: int, name: str = HELPER) -> Path:
    folder = cache / key_of(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(elf(b"host code"))
    (folder / name).chmod(0o755)
    return folder / name


def refusals(cache: Path, *, ours: bool = True) -> list[str]:
    found, refused = scan(TRITON, cache, ours=ours)
    assert found == []
    return [item.kind for item in refused]


def test_group_that_lacks_a_child_does_not_travel(tmp_path: Path) -> None:
    """Triton up to 3.7 crashes on it: KeyError: "Unknown key: 'cubin'"."""
    (write_triton_entry(tmp_path, 1) / "add.cubin").unlink()
    assert refusals(tmp_path) == ["incomplete"]


def test_empty_child_does_not_travel(tmp_path: Path) -> None:
    (write_triton_entry(tmp_path, 1) / "add.cubin").write_bytes(b"")
    assert refusals(tmp_path, ours=False) == ["torn"]


@pytest.mark.parametrize(
    "group", ["", "{", "[]", "{}", '{"child_paths": {}}', '{"child_paths": {"a": 1}}', '{"child_paths": []}']
)
def test_broken_group_file_is_no_entry(tmp_path: Path, group: str) -> None:
    (write_triton_entry(tmp_path, 1) / "__grp__add.json").write_text(group)
    assert refusals(tmp_path) == ["torn"]


def test_cut_off_cubin_or_helper_is_not_served(tmp_path: Path) -> None:
    """A truncated cubin is served without a check, a truncated helper library is a SIGBUS."""
    folder = write_triton_entry(tmp_path, 1)
    whole = bytearray(elf(b"x" * 500))
    whole[40:48] = (400).to_bytes(8, "little")  # section headers at 400 …
    whole[58:62] = (64).to_bytes(2, "little") + (2).to_bytes(2, "little")  # … two of 64 bytes
    for name in ("add.cubin",):
        (folder / name).write_bytes(bytes(whole)[:500])
    with pytest.raises(EntryRefused, match="cut off"):
        entries(TRITON, tmp_path, ours=False)
    (folder / "add.cubin").write_bytes(bytes(whole))
    assert len(entries(TRITON, tmp_path, ours=False)) == 1


def test_empty_metadata_crashes_triton(tmp_path: Path) -> None:
    (write_triton_entry(tmp_path, 1) / "add.json").write_text('{"hash"')
    with pytest.raises(EntryRefused, match="not JSON"):
        entries(TRITON, tmp_path, ours=False)


@pytest.mark.parametrize("where", ["/etc/hostname", "/elsewhere/KEY/add.cubin", "../add.cubin", "add.cubin"])
@pytest.mark.parametrize("ours", [True, False])
def test_group_that_points_outside_its_room_is_not_published(tmp_path: Path, where: str, ours: bool) -> None:
    folder = write_triton_entry(tmp_path, 1)
    group = folder / "__grp__add.json"
    fields = json.loads(group.read_text())
    fields["child_paths"]["add.cubin"] = where
    group.write_text(json.dumps(fields))
    assert refusals(tmp_path, ours=ours) == ["outside"]


def test_group_written_under_another_mount_point_is_adopted(tmp_path: Path) -> None:
    """A cache made in a container is adopted from the host; only the files beside the group are ever read."""
    folder = write_triton_entry(tmp_path, 1)
    group = folder / "__grp__add.json"
    group.write_text(group.read_text().replace(str(tmp_path), "/root/.triton/cache"))
    assert len(entries(TRITON, tmp_path, ours=False)) == 1
    assert refusals(tmp_path, ours=True) == ["outside"]


def test_stored_group_that_names_a_stranger_is_not_bound() -> None:
    data = json.dumps({"child_paths": {"../../evil": "x"}}).encode()
    with pytest.raises(EntryRefused):
        TRITON.attach("__grp__add.json", data, ("__grp__add.json", "add.cubin"), "/room/KEY")


def test_files_replaced_by_a_second_writer_after_the_end_do_not_travel(tmp_path: Path) -> None:
    """Two processes of one job, the second killed half-way: its cubin with the first one's metadata."""
    folder = write_triton_entry(tmp_path, 1)
    late = (folder / "__grp__add.json").stat().st_mtime_ns + 1_000_000_000
    os.utime(folder / "add.cubin", ns=(late, late))
    assert refusals(tmp_path, ours=True) == ["mixed"]


def test_temporary_and_foreign_things_are_left_out(tmp_path: Path) -> None:
    folder = write_triton_entry(tmp_path, 1)
    (folder / "tmp.pid_1_x").mkdir()
    (folder / "tmp.pid_1_x" / "add.cubin").write_bytes(b"half")
    (folder / "lock").touch()
    (folder / "stray.txt").write_text("not in the group")
    (tmp_path / "tmp.pid_2_y").mkdir()
    (tmp_path / "not-a-key").mkdir()
    (tmp_path / key_of(9)).mkdir()
    (tmp_path / "file").touch()
    found, refused = scan(TRITON, tmp_path)
    assert [set(item.names) for item in found] == [
        {"__grp__add.json", "add.source", "add.ttir", "add.cubin", "add.json"}
    ]
    assert sorted(item.kind for item in refused) == ["incomplete", "unknown"]


TIMINGS = '{"key": [1], "configs_timings": [[{"kwargs": {"BLOCK": 64}, "num_warps": 4}, [1.0, 1.0, 1.0]]]}'


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What autotuning leaves on a machine with this GPU."""
    gpu = accelerator.Accelerators("nvidia-580.159.04", ("NVIDIA H200",))
    monkeypatch.setattr(accelerator, "here", lambda: gpu)
    folder = tmp_path / key_of(7)
    folder.mkdir()
    (folder / "add.autotune.json").write_text(TIMINGS)
    return folder / "add.autotune.json"


def test_autotuning_result_is_an_entry_of_its_own_kind(tmp_path: Path, measured: Path) -> None:
    (entry,) = entries(TRITON, tmp_path)
    assert entry.address.fingerprint == "tuned-nvidia-580.159.04-NVIDIA_H200"
    assert TRITON.accepts(entry.address.fingerprint, HOST)
    assert not TRITON.accepts("tuned-nvidia-580.159.04-NVIDIA_H100", HOST)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"configs_timings": []}', TIMINGS[:60], '{"configs_timings": [[1, 2]]}']
)
def test_autotuning_result_that_ends_a_program_does_not_travel(tmp_path: Path, measured: Path, text: str) -> None:
    """Each of these is an exception in Triton's `check_disk_cache` (seen on 3.6 and 3.9)."""
    measured.write_text(text)
    with pytest.raises(EntryRefused):
        entries(TRITON, tmp_path)


def test_links_in_a_cache_are_not_followed(tmp_path: Path) -> None:
    folder = write_triton_entry(tmp_path / "cache", 1)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / "add.source").unlink()
    (folder / "add.source").symlink_to(secret)
    assert refusals(tmp_path / "cache") == ["incomplete"]


def test_helpers_of_two_pythons_in_one_directory_are_two_entries(tmp_path: Path) -> None:
    """Up to 3.6 the key of a helper does not know the Python: two files, two entries, two fingerprints."""
    write_helper(tmp_path, 1)
    write_helper(tmp_path, 1, HELPER.replace("311", "312"))
    found, _ = scan(TRITON, tmp_path)
    assert len({item.fingerprint for item in found}) == 2
    assert {item.key for item in found} == {key_of(1)}


def test_host_code_is_not_given_to_another_machine_or_libc() -> None:
    mark = f"{HOST.machine}-{HOST.libc}-cpython-311-x86_64-linux-gnu"
    assert TRITON.accepts(mark, HOST)
    assert not TRITON.accepts(mark, Host("riscv64", HOST.libc))
    assert not TRITON.accepts(mark, Host(HOST.machine, "glibc-2.17"))
    assert TRITON.accepts("any", Host("riscv64", "musl"))


def test_compile_seconds_come_from_the_files_own_times(tmp_path: Path) -> None:
    folder = write_triton_entry(tmp_path, 1)
    end = (folder / "__grp__add.json").stat().st_mtime
    for name in ("add.source", "add.ttir"):
        os.utime(folder / name, (end, end - 2.5))
    (found,) = scan(TRITON, tmp_path)[0]
    assert found.seconds == pytest.approx(2.5, abs=0.1)
    os.utime(folder / "add.source", (end, end - 99999))
    (found,) = scan(TRITON, tmp_path)[0]
    assert found.seconds == 0.0
