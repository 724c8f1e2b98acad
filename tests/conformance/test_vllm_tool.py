"""vLLM keeps the tools' contract, with the file tree of commit a014e35f (August 2026), written by hand from its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ondol.errors import EntryRefused
from ondol.testing.tool_suite import ToolSuite, entries, scan
from ondol.tools.vllm import Vllm

VLLM = Vllm()
ROOT = "/srv/ondol/vllm"
SHORT, LONG = "0123456789", "ab" * 32
AHEAD = f"torch_compile_cache/torch_aot_compile/{LONG}"


def write_compiled(cache: Path, short: str = SHORT, ranks: int = 2, root: str = ROOT) -> Path:
    folder = cache / "torch_compile_cache" / short
    for rank in range(ranks):
        part = folder / f"rank_{rank}_0" / "backbone"
        part.mkdir(parents=True)
        (part / "cache_key_factors.json").write_text(json.dumps({"code_hash": "c", "env": {}}))
        (part / "computation_graph.py").write_text("class GraphModule: ...\n")
        artifact = "artifact_compile_range_1_2048_subgraph_0"
        (part / artifact).write_bytes(b"compiled graph")
        place = f"{root}/torch_compile_cache/{short}/rank_{rank}_0/backbone/{artifact}"
        book = {((1, 2048), 0, "inductor_standalone"): {"graph_handle": (artifact, place), "cache_key": "a1"}}
        (part / "vllm_compile_cache.py").write_text(repr(book))
    return folder


def write_ahead(cache: Path, place: str = AHEAD, model: bytes = b"\x80\x05model.") -> Path:
    path = cache / place / "rank_0_0" / "model"
    path.parent.mkdir(parents=True)
    path.write_bytes(model)
    return path


def write_info(cache: Path, version: str = "c0ffee00" * 4) -> Path:
    path = cache / "modelinfos" / "vllm-model_executor-models-llama-LlamaForCausalLM.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hash": version, "modelinfo": {"architecture": "LlamaForCausalLM"}}))
    return path


class TestVllm(ToolSuite):
    tool = VLLM

    def make_cache(self, path: Path) -> int:
        write_compiled(path)
        write_ahead(path)
        write_ahead(path, f"torch_aot_compile/{LONG}")  # as versions before this one had it
        write_info(path)
        return 4


def kinds(cache: Path) -> list[str]:
    found, refused = scan(VLLM, cache)
    assert found == []
    return [item.kind for item in refused]


def test_private_parts_neither_travel_nor_are_reported_as_strange(tmp_path: Path) -> None:
    write_compiled(tmp_path)
    write_ahead(tmp_path)
    for name in (
        f"{AHEAD}/inductor_cache/ab/cab.py",
        f"{AHEAD}/rank_0_0/model.4711.tmp",
        f"torch_compile_cache/{SHORT}/rank_0_0/inductor_cache/locks/ab.lock",
        f"torch_compile_cache/{SHORT}/rank_0_0/inductor_cache/ab/.12.34.tmp",
        "dummy_cache/x",
        "deep_gemm/cache/kernel.gemm.00/kernel.cubin",
        "startup_plan/startup_plan_1.json",
        "gpu_p2p_access_cache_for_0,1.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("private")
    found, refused = scan(VLLM, tmp_path)
    assert refused == []
    assert sorted(len(item.names) for item in found) == [1, 8]


def test_empty_shell_of_a_job_that_compiled_ahead_is_neither_entry_nor_trouble(tmp_path: Path) -> None:
    """The directory of the other kind has its books and no artifacts then: neither an entry nor trouble."""
    for book in write_compiled(tmp_path).rglob("vllm_compile_cache.py"):
        book.unlink()
    assert kinds(tmp_path) == []


@pytest.mark.parametrize("lost", ["vllm_compile_cache.py", "artifact_compile_range_1_2048_subgraph_0"])
def test_model_of_which_one_rank_was_killed_does_not_travel(tmp_path: Path, lost: str) -> None:
    (write_compiled(tmp_path) / "rank_1_0" / "backbone" / lost).unlink()
    assert kinds(tmp_path) == ["incomplete"]


def test_cache_of_another_place_is_no_entry(tmp_path: Path) -> None:
    """vllm#52154: handles are absolute paths; at any other place they lead to nothing, or to somebody else's file."""
    write_compiled(tmp_path, root="/root/.cache/vllm")
    assert kinds(tmp_path) == ["outside"]


@pytest.mark.parametrize("book", ["{", "[]", "{1: 2}", "{1: {'graph_handle': ('a',)}}", "__import__('os')"])
def test_torn_book_is_no_entry(tmp_path: Path, book: str) -> None:
    (write_compiled(tmp_path) / "rank_0_0" / "backbone" / "vllm_compile_cache.py").write_text(book)
    assert kinds(tmp_path) == ["torn"]


def test_real_path_of_the_room_inside_a_pickle(tmp_path: Path) -> None:
    write_ahead(tmp_path, model=b"\x80\x05" + str(tmp_path).encode() + b"/inductor_cache.")
    with pytest.raises(EntryRefused, match="and not /srv/ondol/vllm"):
        entries(VLLM, tmp_path)


def test_cut_off_model_is_not_published(tmp_path: Path) -> None:
    write_ahead(tmp_path, model=b"\x80\x05mod")
    with pytest.raises(EntryRefused, match="cut off"):
        entries(VLLM, tmp_path)


def test_model_made_again_has_another_key(tmp_path: Path) -> None:
    """Its directory's name does not cover the sources: under the same key the first one would stay for ever."""
    model = write_ahead(tmp_path)
    info = write_info(tmp_path)
    first = {entry.address.key for entry in entries(VLLM, tmp_path)}
    model.write_bytes(b"\x80\x05other.")
    info.write_text(info.read_text().replace("c0ffee00", "deadbeef"))
    second = {entry.address.key for entry in entries(VLLM, tmp_path)}
    assert not first & second
    assert {key.split("@")[0] for key in first} == {key.split("@")[0] for key in second}


@pytest.mark.parametrize(
    "name",
    ["x", "torch_compile_cache/x", "modelinfos", "torch_aot_compile/00/x", "etc/passwd", f"{AHEAD}/rank_0_0/a.lock"],
)
def test_name_leads_elsewhere(name: str) -> None:
    """Of a pack's file: to where vLLM keeps nothing, or to what it takes for a lock of its own."""
    with pytest.raises(EntryRefused, match="not a file that vllm keeps"):
        VLLM.attach(name, b"", (name, f"{AHEAD}/rank_0_0/model"), "/srv/ondol/vllm")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"hash": "../x", "modelinfo": {}}', '{"hash": "c0ffee00c0ffee00"}'])
def test_torn_model_information_does_not_travel(tmp_path: Path, text: str) -> None:
    write_info(tmp_path).write_text(text)
    assert kinds(tmp_path) == ["torn"]
