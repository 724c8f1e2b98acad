"""Every tool keeps the tools' contract on a cache rebuilt from a recorded tree; what must not travel is refused.

For cupy, cute-dsl, helion, deepgemm, sglang-jit, cuda-python, cuda-driver and miopen this is all that can be done
without a GPU; the others are driven for real in `tests/real`.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path

import pytest

from conformance.recorded import TREES, database, rebuild
from handmade import elf
from ondol.errors import EntryRefused
from ondol.host import accelerator
from ondol.room import harvest
from ondol.testing.tool_suite import HOST, ToolSuite, entries, scan
from ondol.tools import registry, table
from ondol.tools.api import TUNED, CacheDir, Tool, version_of

H200 = accelerator.Accelerators("nvidia-580.159.04", ("NVIDIA H200",))


def load(name: str) -> Tool:
    return registry.load(registry.choose([name])[0])


@pytest.fixture(autouse=True)
def on_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "here", lambda: H200)


class Recorded(ToolSuite):
    count: int

    def make_cache(self, path: Path) -> int:
        rebuild(self.tool.row.name, path)
        return self.count


class TestCuPy(Recorded):
    tool, count = load("cupy"), 4


class TestCudaDriver(Recorded):
    tool, count = load("cuda-driver"), 3


class TestCuteDsl(Recorded):
    tool, count = load("cute-dsl"), 2


class TestHelion(Recorded):
    tool, count = load("helion"), 2


class TestDeepGemm(Recorded):
    tool, count = load("deepgemm"), 2


class TestSglangJit(Recorded):
    tool, count = load("sglang-jit"), 2


class TestCudaPython(Recorded):
    tool, count = load("cuda-python"), 2


class TestCuTile(Recorded):
    tool, count = load("cutile"), 1


class TestMIOpen(Recorded):
    tool, count = load("miopen"), 2


class TestTileLang(Recorded):
    tool, count = load("tilelang"), 3


class TestJax(Recorded):
    tool, count = load("jax"), 2


class TestWarp(Recorded):
    tool, count = load("warp"), 6


class TestNumba(Recorded):
    tool, count = load("numba"), 2


def test_every_tool_has_a_suite() -> None:
    """Every row whose files travel has a tree here, or a suite in another file."""
    recorded = {tree.stem for tree in TREES.glob("*.txt")}
    others = [path.read_text() for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    suites = "\n".join(text for text in others if "(ToolSuite)" in text)
    for row in table.ROWS:
        if row.travels and row.name not in recorded:
            assert re.search(rf"\b{type(load(row.name)).__name__}\b", suites), row.name


def test_tree_says_where_it_was_taken() -> None:
    for tree in TREES.glob("*.txt"):
        first = tree.read_text().splitlines()[0]
        assert first.startswith("# "), tree
        assert any(letter.isdigit() for letter in first), tree


# -- what a tool's own contents show to be torn ------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["cupy", "cuda-driver", "cute-dsl", "helion", "miopen", "cutile"])
def test_cut_off_file_does_not_travel(tool: str, tmp_path: Path) -> None:
    """Half a file, as a full disk or a killed writer leaves it."""
    rebuild(tool, tmp_path)
    for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found, refused = scan(load(tool), tmp_path)
    assert found or refused
    for item in found:
        with pytest.raises(EntryRefused):
            harvest.read_entry(load(tool), CacheDir(str(tmp_path), ours=True), item, "main", {})


@pytest.mark.parametrize(
    ("tool", "names"), [("deepgemm", "kernel.cubin"), ("sglang-jit", "*.so"), ("cuda-python", "19ce*"), ("warp", "*.o")]
)
def test_cut_off_binary_does_not_travel(tool: str, names: str, tmp_path: Path) -> None:
    rebuild(tool, tmp_path)
    whole = bytearray(elf(b"x" * 500))
    whole[40:48] = (400).to_bytes(8, "little")  # section headers at 400 …
    whole[58:62] = (64).to_bytes(2, "little") + (2).to_bytes(2, "little")  # … two of 64 bytes
    for path in tmp_path.rglob(names):
        path.write_bytes(whole[:500])
    with pytest.raises(EntryRefused, match="cut off"):
        entries(load(tool), tmp_path)


# -- driver, devices, libraries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["helion", "miopen", "cuda-driver", "tilelang"])
def test_other_driver_or_model_is_not_served(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuild(tool, tmp_path)
    fingerprints = {found.fingerprint for found in scan(load(tool), tmp_path)[0]}
    made = {fingerprint for fingerprint in fingerprints if "nvidia-580.159.04" in fingerprint}
    assert len(made) == 1
    newer = H200._replace(driver="nvidia-590.1")
    monkeypatch.setattr(accelerator, "here", lambda: newer)
    assert not any(load(tool).accepts(fingerprint, HOST) for fingerprint in made)
    smaller = H200._replace(models=("NVIDIA H100",))
    monkeypatch.setattr(accelerator, "here", lambda: smaller)
    measured = {fingerprint for fingerprint in made if fingerprint.startswith(TUNED)}
    assert not any(load(tool).accepts(fingerprint, HOST) for fingerprint in measured)


@pytest.mark.parametrize("tool", ["helion", "miopen", "cuda-driver"])
def test_what_was_measured_nobody_knows_where_does_not_travel(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container without the driver's files: such an entry would be served to every machine that cannot tell either."""
    nowhere = accelerator.Accelerators("", ())
    monkeypatch.setattr(accelerator, "here", lambda: nowhere)
    rebuild(tool, tmp_path)
    found, refused = scan(load(tool), tmp_path)
    assert found == []
    assert {item.kind for item in refused} == {"unplaced"}
    assert not load(tool).accepts("", HOST)


def test_helion_result_that_knows_no_library_versions_travels(tmp_path: Path) -> None:
    rebuild("helion", tmp_path)
    for path in tmp_path.glob("*.best_config"):
        path.write_text(path.read_text().replace("Strict", "Loose"))
    with pytest.raises(EntryRefused, match="library versions"):
        entries(load("helion"), tmp_path)


# -- databases ---------------------------------------------------------------------------------------------------------


def test_database_is_not_new_after_a_mere_look(tmp_path: Path) -> None:
    """cuTile writes the time of use into its database: no job would ever be warm."""
    import sqlite3

    tool = load("cutile")
    (tmp_path / "cache.db").write_bytes(database(["one", "two"]))
    (before,) = scan(tool, tmp_path)[0]
    connection = sqlite3.connect(tmp_path / "cache.db")
    connection.execute("UPDATE cache SET atime = 99.0")
    connection.commit()
    (looked,) = scan(tool, tmp_path)[0]
    connection.execute("INSERT INTO cache VALUES ('three', 'x', 1, 1.0, NULL)")
    connection.commit()
    connection.close()
    (added,) = scan(tool, tmp_path)[0]
    assert looked.key == before.key != added.key
    assert version_of(before.key) == version_of(added.key)


@pytest.mark.parametrize("end", ["-journal", "-wal"])
def test_database_in_the_middle_of_a_transaction_does_not_travel(tmp_path: Path, end: str) -> None:
    (tmp_path / "cache.db").write_bytes(database(["one"]))
    (tmp_path / f"cache.db{end}").write_bytes(b"a change that is not finished")
    found, refused = scan(load("cutile"), tmp_path)
    assert (found, [item.kind for item in refused]) == ([], ["torn"])
    (tmp_path / f"cache.db{end}").write_bytes(b"")
    assert len(scan(load("cutile"), tmp_path)[0]) == 1


def test_half_a_database_does_not_pass_for_one() -> None:
    from ondol.tools.shaped_tools import CuTile

    data = database([f"key {n}" for n in range(500)])
    CuTile().check("cache.db", data)
    with pytest.raises(EntryRefused):
        CuTile().check("cache.db", data[:8192])


def test_damaged_or_strange_database_does_not_travel(tmp_path: Path) -> None:
    data = bytearray(database([f"key {n}" for n in range(500)]))
    data[4096:8192] = bytes(4096)
    (tmp_path / "cache.db").write_bytes(data)
    assert [item.kind for item in scan(load("cutile"), tmp_path)[1]] == ["torn"]
    (tmp_path / "cache.db").write_bytes(database([]))
    assert [item.kind for item in scan(load("cutile"), tmp_path)[1]] == ["incomplete"]


def test_miopen_results_in_another_order_are_not_new(tmp_path: Path) -> None:
    name = "gfx942130.HIP.3_3_0_2d1fd997a6.ufdb.txt"
    (tmp_path / name).write_text("b=2\na=1\n")
    (one,) = scan(load("miopen"), tmp_path)[0]
    (tmp_path / name).write_text("a=1\nb=2\n")
    (same,) = scan(load("miopen"), tmp_path)[0]
    (tmp_path / name).write_text("a=1\nb=3\n")
    (other,) = scan(load("miopen"), tmp_path)[0]
    assert one.key == same.key != other.key


# -- entries that were never finished, or were changed since -----------------------------------------------------------


def numba_index(cache: Path, function: str) -> Path:
    rebuild("numba", cache)
    (index,) = cache.rglob(f"*.{function}-*.nbi")
    return index


def test_numba_index_newer_than_all_its_code_does_not_travel(tmp_path: Path) -> None:
    """The table is written before the code: a job killed in between leaves a new source's index with old code."""
    index = numba_index(tmp_path, "f")
    late = index.stat().st_mtime_ns + 10**9
    os.utime(index, ns=(late, late))
    found, refused = scan(load("numba"), tmp_path)
    assert [item.kind for item in refused] == ["mixed"]
    assert len(found) == 1
    code = index.with_name(index.name.replace(".nbi", ".2.nbc"))
    os.utime(code, ns=(late, late))
    assert len(scan(load("numba"), tmp_path)[0]) == 2


def test_numba_index_that_names_missing_code_does_not_travel(tmp_path: Path) -> None:
    index = numba_index(tmp_path, "f")
    index.with_name(index.name.replace(".nbi", ".2.nbc")).unlink()
    assert [item.kind for item in scan(load("numba"), tmp_path)[1]] == ["incomplete"]


def test_numba_code_with_something_behind_it_does_not_travel(tmp_path: Path) -> None:
    numba_index(tmp_path, "g")
    (code,) = tmp_path.rglob("*.g-*.nbc")
    code.write_bytes(code.read_bytes() + b"more")
    with pytest.raises(EntryRefused, match="does not end"):
        entries(load("numba"), tmp_path)


def test_numba_pickle_is_never_loaded(tmp_path: Path) -> None:
    """A pickle can run anything: an index from elsewhere is looked at, and nothing in it happens."""
    index = numba_index(tmp_path, "f")
    attack = pickle.dumps(Attack(str(tmp_path / "done")))
    index.write_bytes(pickle.dumps("0.68.1") + attack)
    (code,) = tmp_path.rglob("*.g-*.nbc")
    code.write_bytes(attack)
    assert len(entries(load("numba"), tmp_path)) == 1
    assert not (tmp_path / "done").exists()


class Attack:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", ["device_kernel.cu", "kernel_lib.so", "params.json"])
def test_kernel_that_its_manifest_does_not_describe_does_not_travel(tmp_path: Path, name: str) -> None:
    rebuild("tilelang", tmp_path)
    (path,) = tmp_path.glob(f"*/*/kernels/*/{name}")
    path.write_bytes(path.read_bytes().replace(b"x", b"y").replace(b"t", b"u"))
    with pytest.raises(EntryRefused, match="manifest"):
        entries(load("tilelang"), tmp_path)


def test_kernel_that_lacks_a_file_of_its_manifest_is_not_offered(tmp_path: Path) -> None:
    rebuild("tilelang", tmp_path)
    next(tmp_path.glob("*/*/kernels/*/params.json")).unlink()
    assert [item.kind for item in scan(load("tilelang"), tmp_path)[1]] == ["incomplete"]


@pytest.mark.parametrize("name", ["best_config.json", "latency.json", "out_idx.json", "params.json", "function.pkl"])
def test_autotuning_result_with_half_a_file_does_not_travel(tmp_path: Path, name: str) -> None:
    """Nothing in TileLang checks it: the user's program ends in the middle of it."""
    rebuild("tilelang", tmp_path)
    (path,) = tmp_path.glob(f"*/*/autotuner/*/{name}")
    path.write_bytes(path.read_bytes()[:5])
    with pytest.raises(EntryRefused):
        entries(load("tilelang"), tmp_path)


def test_file_that_came_later_is_no_part_of_a_kernel(tmp_path: Path) -> None:
    rebuild("tilelang", tmp_path)
    names = [name for found in scan(load("tilelang"), tmp_path)[0] for name in found.names]
    assert any(name.endswith("kernel_lib.so") for name in names)
    assert not any(name.endswith("late.cubin") for name in names)


def test_second_target_of_a_module_is_an_entry_of_its_own(tmp_path: Path) -> None:
    """An sm_90 job that finds the directory of an sm_80 one adds its binary: an entry of its own."""
    rebuild("warp", tmp_path)
    keys = {found.key: found.names for found in scan(load("warp"), tmp_path)[0]}
    cubins = [names for key, names in keys.items() if key.endswith(".cubin")]
    assert len(cubins) == 2
    assert all(any(name.endswith(".meta") for name in names) for names in cubins)


def test_module_without_its_hash_does_not_travel(tmp_path: Path) -> None:
    folder = tmp_path / "1.19.0" / "wp_physics"
    folder.mkdir(parents=True)
    (folder / "wp_physics.meta").write_text("{}")
    (folder / "wp_physics.sm90.cubin").write_bytes(elf(b"code"))
    assert scan(load("warp"), tmp_path)[0] == []


# -- what a pack may bring ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool", ["cupy", "cuda-driver", "cute-dsl", "helion", "deepgemm", "sglang-jit", "cutile", "miopen"]
)
@pytest.mark.parametrize("name", ["sitecustomize.py", "../up", "cache/evil.so", "index", ".lock"])
def test_pack_brings_a_file_of_its_own_choice(tool: str, name: str, tmp_path: Path) -> None:
    rebuild(tool, tmp_path)
    genuine = scan(load(tool), tmp_path)[0][0].names
    with pytest.raises(EntryRefused):
        load(tool).attach(name, b"x", (*genuine, name), "/room")


def test_dependency_list_of_sglang_is_not_a_list(tmp_path: Path) -> None:
    rebuild("sglang-jit", tmp_path)
    for path in tmp_path.rglob("sgl_deps.json"):
        path.write_text(json.dumps({"not": "a list"}))
    with pytest.raises(EntryRefused):
        entries(load("sglang-jit"), tmp_path)
