"""Inductor keeps the tools' contract, and its own traps are refused. Trees as torch 2.13 left them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from handmade import elf
from ondol.errors import EntryRefused
from ondol.host import accelerator, identity
from ondol.host.identity import Host
from ondol.testing.tool_suite import HOST, ToolSuite, entries, scan
from ondol.tools.inductor import Inductor, native_code

INDUCTOR = Inductor()
TORCH = "TORCH_OF_THIS_TEST"
CPP = 'cpp_fused_add_0 = async_compile.cpp_pybinding(r"""\n#include <torch/csrc/inductor/cpp_prefix.h>\n""")'
GPU = "triton_poi_fused_add_0 = async_compile.triton(...)"
TUNED = hashlib.sha256(b"config").hexdigest()


@pytest.fixture(autouse=True)
def torch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed torch, whose headers the kernels of a test were compiled with."""
    torch = tmp_path_factory.mktemp("packages") / "torch"
    write(torch / "version.py", b"__version__ = '2.13.0'")
    monkeypatch.setenv(TORCH, str(torch))
    return torch


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device that tuning results were measured on."""
    monkeypatch.setattr(accelerator, "here", lambda: accelerator.Accelerators("nvidia-580.159.04", ("NVIDIA H200",)))


def name_of(content: bytes) -> str:
    """As torch makes names: 51 letters."""
    return base64.b32encode(hashlib.sha256(content).digest()).decode().lower()[:51]


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_graph(cache: Path, number: int, source: str = CPP, guards: str | None = None, note: Any = "") -> Path:
    fields: dict[str, Any] = {"guards_expr": guards, "_time_taken_ns": 2_500_000_000, "note": note}
    if source == GPU:  # the tuner that travels in the graph
        fields["tuner"] = {"local_cache": f"{cache}/q3/{TUNED}.best_config", "precompile_time_taken_ns": 0}
    repro = f"# torch version: 2.13.0+cpu\nos.environ['TORCHINDUCTOR_CACHE_DIR'] = '{cache}'\n"
    data = pickle.dumps({"source_code": f"# kernel path: {cache}/q3/c.py\n" + source, "repro": repro, **fields})
    key = "f" + name_of(b"graph %d" % number)
    return write(cache / "fxgraph" / key[1:3] / key / name_of(data), data)


def write_function(cache: Path, number: int) -> Path:
    data = pickle.dumps({"forward_time_taken_ns": 3_000_000_000, "guards_expr": None, "number": number})
    return write(cache / "aotautograd" / ("a" + name_of(b"function %d" % number)) / name_of(data), data)


def names_its_torch() -> bytes:
    return b"\x00" + os.environ[TORCH].encode() + b"/include/ATen/cpu/vec\x00"


def write_library(cache: Path, number: int, kind: str = ".main", torch: bytes | None = None) -> Path:
    key = "c" + name_of(b"library %d" % number)
    write(cache / key[1:3] / f"{key}{kind}.cpp", b"#include <torch/csrc/inductor/cpp_prefix.h>\n")
    library = write(cache / key[1:3] / f"{key}{kind}.so", elf(names_its_torch() if torch is None else torch))
    library.chmod(0o755)
    return library


def write_probe(cache: Path, number: int) -> Path:
    """With its table of sections at its end, as linkers write it: what is cut off is the table."""
    probe = write_library(cache, number, kind="", torch=b"code" * 100)
    whole = bytearray(probe.read_bytes() + bytes(128))
    whole[40:48] = (len(whole) - 128).to_bytes(8, "little")
    whole[58:62] = (64).to_bytes(2, "little") + (2).to_bytes(2, "little")
    probe.write_bytes(whole)
    return probe


def write_header(cache: Path, number: int, first: bytes = b"gpch+014") -> Path:
    key = "c" + name_of(b"header %d" % number)
    write(cache / "precompiled_headers" / f"{key}.h", b"#include <torch/csrc/inductor/cpp_prefix.h>\n")
    return write(cache / "precompiled_headers" / f"{key}.h.gch", first + b"header" * 100 + names_its_torch())


def write_best_config(cache: Path) -> Path:
    content = {"XBLOCK": 128, "num_warps": 4, "configs_hash": "abc", "time_taken_ms": 12}
    return write(cache / "q3" / f"{TUNED}.best_config", json.dumps(content).encode())


class TestInductor(ToolSuite):
    tool = INDUCTOR

    def make_cache(self, path: Path) -> int:
        write_graph(path, 1)
        write_graph(path, 2, source=GPU)
        write_function(path, 1)
        write_library(path, 1)
        write_probe(path, 2)
        write_header(path, 1)
        write_best_config(path)
        return 7


def refusals(cache: Path, *, ours: bool = True) -> list[str]:
    return sorted(item.kind for item in scan(INDUCTOR, cache, ours=ours)[1])


@pytest.mark.parametrize("make", [write_graph, write_function, write_library, write_probe, write_header])
@pytest.mark.parametrize("damage", ["emptied", "cut", "removed"])
def test_torn_files_do_not_travel(tmp_path: Path, make: Any, damage: str) -> None:
    """A cut probe breaks each later compile, a cut library is a SIGBUS, an empty source a library nobody can check."""
    make(tmp_path, 1)
    assert len(entries(INDUCTOR, tmp_path)) == 1
    for place in [path for path in tmp_path.rglob("*") if path.is_file()]:
        whole = place.read_bytes()
        if damage == "removed":
            place.unlink()
        else:
            place.write_bytes(b"" if damage == "emptied" else whole[: -len(whole) // 3])
        # Text is whole at any length.
        assert travels(tmp_path) == (damage == "cut" and place.suffix in (".cpp", ".h")), place
        place.write_bytes(whole)


def travels(cache: Path) -> bool:
    try:
        return bool(entries(INDUCTOR, cache))
    except EntryRefused:
        return False


def test_header_of_a_compiler_that_was_killed_does_not_travel(tmp_path: Path) -> None:
    """GCC begins with `gpcWrite` and puts the right letters there when everything else is written."""
    write_header(tmp_path, 1, first=b"gpcWrite")
    with pytest.raises(EntryRefused, match="cut off"):
        entries(INDUCTOR, tmp_path)


def test_torn_tuning_result_does_not_travel(tmp_path: Path) -> None:
    write_best_config(tmp_path).write_text('{"XBLOCK": 1')
    with pytest.raises(EntryRefused, match="cut off"):
        entries(INDUCTOR, tmp_path)


def test_tuning_result_is_not_used_on_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_best_config(tmp_path)
    ((found,), _) = scan(INDUCTOR, tmp_path)
    assert INDUCTOR.accepts(found.fingerprint, HOST)
    other = accelerator.Accelerators("nvidia-580.159.04", ("NVIDIA L4",))
    monkeypatch.setattr(accelerator, "here", lambda: other)
    assert not INDUCTOR.accepts(found.fingerprint, HOST)


def test_same_graph_compiled_by_many_jobs_is_one_entry(tmp_path: Path) -> None:
    """Its content holds times and paths, so its name is never twice the same; its key and guards are."""
    for cache in ("one", "two"):
        write_graph(tmp_path / cache, 1, guards="2 <= s0", note=cache)
    keys = [scan(INDUCTOR, tmp_path / cache)[0][0].key for cache in ("one", "two")]
    assert keys[0] == keys[1]


def test_workers_that_compile_one_graph_at_once_publish_it_once(tmp_path: Path) -> None:
    write_graph(tmp_path, 1, note="one")
    write_graph(tmp_path, 1, note="two")
    assert len(scan(INDUCTOR, tmp_path)[0]) == 1


def test_graphs_under_other_guards_are_entries_of_their_own(tmp_path: Path) -> None:
    """Compiled although an entry of that key was there: the guards of the stored one did not hold."""
    write_graph(tmp_path, 1)
    write_graph(tmp_path, 1, guards="2 <= s0 and s0 <= 4096")
    write_graph(tmp_path, 1, guards="4097 <= s0")
    found = scan(INDUCTOR, tmp_path)[0]
    assert len({item.key for item in found}) == 3
    assert len({item.key[:52] for item in found}) == 1


def test_guards_that_cannot_be_read_do_not_make_two_graphs_one(tmp_path: Path) -> None:
    """The same text twice in a pickle is written once and then referred to."""
    for number in (1, 2):
        guards = f"{number} <= s0"
        data = pickle.dumps([guards, {"guards_expr": guards}])
        key = "f" + name_of(b"graph")
        write(tmp_path / "fxgraph" / key[1:3] / key / name_of(data), data)
    assert len({item.key for item in scan(INDUCTOR, tmp_path)[0]}) == 2


@pytest.mark.parametrize("rest", [b".", b"\x94.", b"\xff.", b"\x8c\xffshort."])
def test_nonsense_in_a_pickle_does_not_stop_the_harvest(tmp_path: Path, rest: bytes) -> None:
    key = "f" + name_of(rest)
    write(tmp_path / "fxgraph" / key[1:3] / key / name_of(rest), b"\x80\x04guards_expr\x94" + rest)
    assert len(entries(INDUCTOR, tmp_path)) == 1  # torch will warn and compile again


def test_numbers_of_another_processor_are_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph with C++ is written for one vector width, which its key does not know; one for a GPU is not."""
    write_graph(tmp_path, 1)
    write_graph(tmp_path, 2, source=GPU)
    write_library(tmp_path, 1, kind="")
    found = scan(INDUCTOR, tmp_path)[0]
    assert {item.fingerprint for item in found} == {native_code(HOST), "any"}
    assert [item.title for item in found if item.fingerprint == "any"] == ["triton_poi_fused_add_0"]
    mark = native_code(HOST)
    assert INDUCTOR.accepts(mark, HOST)
    assert not INDUCTOR.accepts(mark, Host(HOST.machine, "glibc-2.17"))
    other = write(tmp_path / "bin" / "g++-99", b"another compiler, with another idea of the processor")
    other.chmod(0o755)
    for variable, value in (("CXX", str(other)), ("ATEN_CPU_CAPABILITY", "avx2")):
        with monkeypatch.context() as context:
            context.setenv(variable, value)
            assert not INDUCTOR.accepts(mark, HOST), variable
    assert INDUCTOR.accepts(mark, HOST)
    monkeypatch.setattr(identity, "processor_features", lambda: "avx2only")
    assert not INDUCTOR.accepts(mark, HOST)
    assert INDUCTOR.accepts("any", Host("riscv64", "musl"))


@pytest.mark.parametrize("make", [write_library, write_header])
def test_kernels_of_another_torch_are_not_loaded(tmp_path: Path, make: Any, torch: Path) -> None:
    """An upgrade in the same place changes the headers, and no key."""
    make(tmp_path, 1)
    (found,) = scan(INDUCTOR, tmp_path)[0]
    assert found.fingerprint.startswith(native_code(HOST) + "-")
    assert INDUCTOR.accepts(found.fingerprint, HOST)
    (torch / "version.py").rename(torch / "real.py")
    assert not INDUCTOR.accepts(found.fingerprint, HOST)
    assert refusals(tmp_path) == ["unknown"]
    (torch / "version.py").symlink_to("real.py")  # as some installers do
    assert INDUCTOR.accepts(found.fingerprint, HOST)
    (torch / "real.py").write_text("__version__ = '2.13.1'")
    assert not INDUCTOR.accepts(found.fingerprint, HOST)


def test_kernel_that_names_no_torch_does_not_travel(tmp_path: Path) -> None:
    """Before 2.13 only the header says which torch it was; with two of them in one job nobody knows."""
    write_library(tmp_path, 1, torch=b"nothing")
    assert refusals(tmp_path) == ["unknown"]
    header = write_header(tmp_path, 1)
    assert [item.fingerprint.partition("@")[2] != "" for item in scan(INDUCTOR, tmp_path)[0]] == [True, True]
    write_header(tmp_path, 2).write_bytes(b"gpch+014\x00/opt/other/torch/include/ATen\x00")
    assert len(scan(INDUCTOR, tmp_path)[0]) == 1
    assert header.exists()


def test_torch_is_found_in_a_large_header(tmp_path: Path) -> None:
    """Real ones have 150 MB, and are read piece by piece: the name may lie across two."""
    for gap in (8 << 20, (8 << 20) - 40):
        header = write_header(tmp_path, 1)
        header.write_bytes(b"gpch+014".ljust(gap, b"\x00") + names_its_torch())
        assert len(scan(INDUCTOR, tmp_path)[0]) == 1


def test_adopted_cache_is_not_believed_to_be_of_this_processor(tmp_path: Path) -> None:
    TestInductor().make_cache(tmp_path)
    found, refused = scan(INDUCTOR, tmp_path, ours=False)
    assert {item.fingerprint for item in found} == {"any"}
    assert len(found) == 2
    assert {item.why for item in refused} == {"made for an unknown processor or device"}


def test_graph_that_includes_from_its_old_place_does_not_travel(tmp_path: Path) -> None:
    """Long before torch 2.11, C++ included a header of the cache by its absolute path: elsewhere it does not compile."""
    write_graph(tmp_path, 1, source='#include "/tmp/torchinductor_root/pi/cpic.h"')
    assert refusals(tmp_path) == ["outside"]


@pytest.mark.parametrize("depth", [1, 30])
def test_tuner_in_a_graph_forgets_its_old_place(tmp_path: Path, depth: int) -> None:
    """A deep room, whose path is longer than what is kept for it, costs time and nothing else."""
    debug = f'loc("{tmp_path}/one/q3/c.py":1:0)'.encode()
    write_graph(tmp_path / "one", 1, source=GPU, note=debug)
    (entry,) = entries(INDUCTOR, tmp_path / "one")
    stored = bytes(entry.files[0].data)
    room = "/" + "/".join(["a room with a long name"] * depth)
    fields = pickle.loads(bytes(INDUCTOR.attach(entry.files[0].name, stored, (entry.files[0].name,), room)))
    assert os.path.normpath(fields["tuner"]["local_cache"]) == f"{room}/q3/{TUNED}.best_config"
    assert len(fields["tuner"]["local_cache"]) < 1024
    assert fields["note"] == debug  # a file of Triton's, which is none of our business
    assert fields["guards_expr"] is None
    assert str(tmp_path) not in fields["source_code"] + fields["repro"]


def test_adopted_graph_does_not_lead_back_to_where_it_was_made(tmp_path: Path) -> None:
    """A cache from a container: its graphs name a path that does not exist here, and other than the one it has here."""
    write_graph(tmp_path / "made-here", 1, source=GPU)
    shutil.move(tmp_path / "made-here", tmp_path / "seen-here")
    (entry,) = entries(INDUCTOR, tmp_path / "seen-here", ours=False)
    assert f"{tmp_path}/made-here/q3/{TUNED}".encode() not in bytes(entry.files[0].data)


def test_graph_that_is_no_pickle_is_not_published(tmp_path: Path) -> None:
    graph = write_graph(tmp_path, 1, source=GPU)
    graph.write_bytes(graph.read_bytes()[:-1] + b"\xff.")
    assert not travels(tmp_path)


def test_locks_sources_and_other_peoples_caches_do_not_travel(tmp_path: Path) -> None:
    library = write_library(tmp_path, 1)
    graph = write_graph(tmp_path, 1)
    for path in (
        "locks/c.lock",
        "precompiled_headers/locks/c.lock",
        "triton/0/KEY/add.cubin",
        "cache/0123456789abcdef",
        "dynamo/code_state_job.pkl",
        "memoizer_cache.json",
        f"{library.parent.name}/.123.456.tmp",
        f"{graph.parent.relative_to(tmp_path)}/.123.456.tmp",
        f"q3/{'c' + name_of(b'python')}.py",
        f"q3/{'c' + name_of(b'object')}.main.o",
        f"q3/{'c' + name_of(b'cutlass')}.so",
        f"q3/{'c' + name_of(b'cutlass')}.cu",
        f"precompiled_headers/{'c' + name_of(b'clang')}.h.pch",
    ):
        write(tmp_path / path, b"something")
    (tmp_path / "library.so").symlink_to(library)
    found, refused = scan(INDUCTOR, tmp_path)
    assert sorted(item.title.split(" ")[0] for item in found) == ["C++", "cpp_fused_add_0"]
    assert refused == []
    write(tmp_path / "somebody" / "else", b"")
    assert refusals(tmp_path) == ["unknown"]


@pytest.mark.parametrize("name", ["../evil", "q3/evil.py", "fxgraph/evil", "locks/c.lock", f"q3/c{'a' * 51}.main.so/x"])
def test_stored_name_that_leads_elsewhere_is_not_bound(name: str) -> None:
    with pytest.raises(EntryRefused):
        INDUCTOR.attach(name, b"", (name,), "/room/cache")


def test_what_a_hit_saves_and_who_made_it_is_told(tmp_path: Path) -> None:
    write_graph(tmp_path, 1)
    write_function(tmp_path, 1)  # its time is that of its graphs
    found = scan(INDUCTOR, tmp_path)[0]
    assert sorted(item.seconds for item in found) == [0.0, 2.5]
    assert sorted(entry.provenance.get("inductor", "") for entry in entries(INDUCTOR, tmp_path)) == ["", "2.13.0+cpu"]
