"""Tools that build with ninja keep the tools' contract; what ninja would get wrong from times alone is refused.

The builds here are real: ninja and a compiler, on sources small enough to take no time.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from handmade import elf
from ondol.errors import EntryRefused, EntryUnfit
from ondol.host import fixed_place
from ondol.room import fill, harvest
from ondol.store.entry import Entry
from ondol.testing.tool_suite import HOST, ToolSuite, entries, scan, unpack_all
from ondol.tools import build_inputs, ninja
from ondol.tools.api import CacheDir
from ondol.tools.ninja_built import LONG_AGO, FlashInfer, TorchExtensions, TvmFfi
from people import ROOT

TORCH = TorchExtensions()
FLASHINFER = FlashInfer()
VERSION = "cpython-311-torch-2.13.0+cpu"
#: A file that is on every machine and outside of everything that the tests make.
SOMEWHERE_ELSE = os.path.realpath(os.__file__)


@pytest.fixture(autouse=True)
def path_with_ninja(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = ROOT / ".build" / "tools" / "bin"
    assert (tools / "ninja").exists(), "make test installs it; for pytest alone: make .build/tools"
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


def write_deps(deps: Mapping[str, Iterable[str]], mtime: int) -> bytes:
    """What ninja would write, with this time for every record."""
    numbers: dict[str, int] = {}
    paths: list[bytes] = []
    records: list[bytes] = []

    def number_of(path: str) -> int:
        if path not in numbers:
            numbers[path] = len(numbers)
            name = path.encode("utf-8", "surrogateescape")
            name += b"\0" * (-len(name) % 4)
            paths.append(struct.pack("<I", len(name) + 4) + name + struct.pack("<I", ~numbers[path] & 0xFFFFFFFF))
        return numbers[path]

    for output, inputs in sorted(deps.items()):
        known = [number_of(path) for path in (output, *inputs)]
        body = struct.pack("<iII", known[0], mtime & 0xFFFFFFFF, mtime >> 32)
        body += struct.pack(f"<{len(known) - 1}i", *known[1:])
        records.append(struct.pack("<I", len(body) | ninja._IS_DEPS) + body)
    return ninja._DEPS_HEAD + b"".join(paths) + b"".join(records)


class Handmade:
    """A build directory as ninja leaves it, without running anything; the library is made from the object, that from
    a source in the cache and a file outside.
    """

    def __init__(self, tool: TorchExtensions | TvmFfi | FlashInfer, cache: Path) -> None:
        self.tool, self.cache = tool, cache

    def seen(self, path: str) -> str:
        return f"{self.tool.root}/{path}"

    def write(self, folder: str, library: str, source: str, absolute: bool = False) -> None:
        place = self.cache / folder
        place.mkdir(parents=True, exist_ok=True)
        (self.cache / source).parent.mkdir(parents=True, exist_ok=True)
        (self.cache / source).write_text("int answer() { return 1; }\n")
        prefix = self.seen(folder) + "/" if absolute else ""
        outputs = f"{prefix}main.o", f"{prefix}{library}"
        (place / "build.ninja").write_text(
            "cxx = c++\n"
            "rule compile\n  command = $cxx -MMD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\n"
            "rule link\n  command = $cxx $in -shared -o $out\n"
            f"build {outputs[0]}: compile {self.seen(source)}\nbuild {outputs[1]}: link {outputs[0]}\n"
        )
        (place / "main.o").write_bytes(elf(b"object"))
        (place / library).write_bytes(elf(b"library"))
        (place / library).chmod(0o755)
        now = time.time_ns()
        made = {output: ninja.Made(0, 1500, now, "ab12") for output in outputs}
        (place / ".ninja_log").write_bytes(ninja.write_log(ninja.NinjaLog("7", made), now))
        reads = {outputs[0]: (self.seen(source), SOMEWHERE_ELSE)}
        (place / ".ninja_deps").write_bytes(write_deps(reads, now))


class TestTorchExtensions(ToolSuite):
    tool = TORCH

    def make_cache(self, path: Path) -> int:
        cache = Handmade(TORCH, path)
        cache.write(f"{VERSION}/one", "one.so", f"{VERSION}/one/main.cpp")
        cache.write("unknown/two", "two.so", "unknown/two/main.cpp")
        return 2


class TestTvmFfi(ToolSuite):
    tool = TvmFfi()

    def make_cache(self, path: Path) -> int:
        name = "cpython-311-tvm_ffi-0.1.12/hello_0123456789abcdef"
        Handmade(TvmFfi(), path).write(name, "hello.so", f"{name}/main.cpp")
        return 1

    def test_lock_that_was_left_behind_does_not_keep_it_private(self, tmp_path: Path) -> None:
        self.make_cache(tmp_path)
        next(tmp_path.rglob("build.ninja")).with_name("lock").touch()
        assert [len(items) for items in scan(self.tool, tmp_path)] == [1, 0]


class TestFlashInfer(ToolSuite):
    """The tree of FlashInfer 0.6.18 (fb28d724): outputs by absolute path, sources generated beside the builds."""

    tool = FLASHINFER
    workspace = ".cache/flashinfer/0.6.18/90a"

    def make_cache(self, path: Path) -> int:
        cache = Handmade(FLASHINFER, path)
        for module in ("page", "quantization"):
            source = f"{self.workspace}/generated/{module}/{module}.cu"
            cache.write(f"{self.workspace}/cached_ops/{module}", f"{module}.so", source, absolute=True)
        cubin = path / ".cache/flashinfer/cubins/6f2a/fmha/trtllm-gen/fmha.cubin"
        cubin.parent.mkdir(parents=True)
        cubin.write_bytes(elf(b"device code"))
        return 3

    def test_private_parts_are_not_reported_as_strange(self, tmp_path: Path) -> None:
        self.make_cache(tmp_path)
        for name in (
            f"{self.workspace}/flashinfer_jit.log",
            f"{self.workspace}/cached_ops/tmp/page.lock",
            f"{self.workspace}/cached_ops/norm_sm90a_cute_dsl/meta.json",
            f"{self.workspace}/cached_ops/norm_sm90a_cute_dsl/norm_f16.o",
            f"{self.workspace}/generated/sampling/sampling.cu",
            f"{self.workspace}/autotune/mla.json",
            ".cache/flashinfer/cubins/6f2a/fmha/trtllm-gen/fmha.cubin.lock",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("private")
        found, refused = scan(FLASHINFER, tmp_path)
        assert (len(found), refused) == (3, [])

    def test_source_behind_a_link_does_not_travel(self, tmp_path: Path) -> None:
        """FlashInfer links downloaded headers into its sources; a room would get a plain directory instead."""
        self.make_cache(tmp_path)
        generated = tmp_path / self.workspace / "generated"
        (generated / "page").rename(tmp_path / "elsewhere")
        (generated / "page").symlink_to(tmp_path / "elsewhere")
        assert [item.kind for item in scan(FLASHINFER, tmp_path)[1]] == ["outside", "unknown"]


class Project:
    """A checkout with a source and a header, and a cache that ninja really builds in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cache = path / "cache"
        (path / "checkout").mkdir(parents=True)
        self.source, self.header = path / "checkout" / "tiny.c", path / "checkout" / "tiny.h"
        self.source.write_text('#include "tiny.h"\nint answer(void) { return ANSWER; }\n')
        self.header.write_text("#define ANSWER 1\n")

    @property
    def folder(self) -> Path:
        return self.cache / VERSION / "tiny"

    def build(self, cache: Path | None = None, inline: str = "", **env: str) -> str:
        """What ninja said. The compiler is the C one, with PyTorch's plan: quick. Inline sources are written inside."""
        program = ["/usr/bin/env", "python3", str(ROOT / "tests" / "programs" / "extension.py"), "tiny"]
        program += ["-", "-x c"] if inline else [str(self.source)]
        place = {"TORCH_EXTENSIONS_DIR": str((cache or self.cache) / VERSION), "CXX": "cc", "CCACHE_DISABLE": "1"}
        done = subprocess.run(
            program,
            env={**os.environ, **place, **env},
            input=inline,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def entry(self) -> Entry:
        (made,) = entries(TORCH, self.cache)
        return made

    def fill(self, made: Entry, room: Path) -> Path:
        unpack_all(TORCH, [made], room)
        return room / "cache"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.build()
    return made


def test_filled_extension_is_not_built_again(project: Project, tmp_path: Path) -> None:
    """The inputs are the same, and everything has another time: ninja alone would start over."""
    made = project.entry()
    naked = tmp_path / "naked"
    for file in made.files:
        (naked / file.name).parent.mkdir(parents=True, exist_ok=True)
        (naked / file.name).write_bytes(bytes(file.data))
    assert '"tiny.o"' in project.build(naked)
    assert '"built": []' in project.build(project.fill(made, tmp_path / "room"))


@pytest.mark.parametrize("what", ["source", "header"])
def test_edit_after_the_fill_is_seen(project: Project, tmp_path: Path, what: str) -> None:
    room = project.fill(project.entry(), tmp_path / "room")
    changed = project.source if what == "source" else project.header
    changed.write_text(changed.read_text().replace("ANSWER;", "ANSWER + 1;").replace("ANSWER 1", "ANSWER 2"))
    said = project.build(room)
    assert '"answer": 2' in said
    assert '"tiny.o", "tiny.so"' in said


@pytest.mark.parametrize("what", ["source", "header"])
def test_other_source_with_the_old_times_is_no_hit(project: Project, tmp_path: Path, what: str) -> None:
    """A checkout by rsync or tar, an edit while the clock was wrong: ninja would call the entry up to date."""
    made = project.entry()
    changed = project.source if what == "source" else project.header
    status = changed.stat()
    changed.write_text(changed.read_text() + "/* another version */\n")
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(EntryUnfit, match=f"another {changed}"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path / "room"), ours=True))


def test_missing_source_and_directory_in_its_place(project: Project, tmp_path: Path) -> None:
    made = project.entry()
    project.header.unlink()
    with pytest.raises(EntryUnfit, match="cannot be read here"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))
    os.mkfifo(project.header)  # would hang whoever opens it
    with pytest.raises(EntryUnfit, match="cannot be read here"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))


def test_source_changed_after_the_build_is_not_published_as_its_source(project: Project) -> None:
    """The worst entry of all: old code under the digest of the new source. `touch -d` does not help: ctime tells."""
    status = project.source.stat()
    project.source.write_text(project.source.read_text().replace("ANSWER;", "2 * ANSWER;"))
    os.utime(project.source, ns=(status.st_atime_ns, status.st_mtime_ns))
    found, refused = scan(TORCH, project.cache)
    assert found == []
    assert [(item.kind, "changed after" in item.why) for item in refused] == [("mixed", True)]


def test_source_changed_between_scan_and_read(project: Project) -> None:
    (found,) = scan(TORCH, project.cache)[0]
    project.header.write_text("#define ANSWER 1 /* saved again by an editor */\n")
    with pytest.raises(EntryRefused, match="changed after"):
        harvest.read_entry(TORCH, CacheDir(str(project.cache), ours=True), found, "main", {})


def test_built_again_between_scan_and_read(project: Project) -> None:
    """By a process that the job left behind: whole, and not what was found."""
    (found,) = scan(TORCH, project.cache)[0]
    project.header.write_text("#define ANSWER 3\n")
    project.build()
    with pytest.raises(EntryRefused, match="changed while it was read"):
        harvest.read_entry(TORCH, CacheDir(str(project.cache), ours=True), found, "main", {})


def test_source_from_the_future_does_not_hide_later_edits(project: Project, tmp_path: Path) -> None:
    made = project.entry()
    soon = time.time_ns() + 3600 * 10**9
    os.utime(project.source, ns=(soon, soon))
    with pytest.raises(EntryUnfit, match="in the future"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))


def test_other_compiler_is_not_taken_for_the_same(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project.entry()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "cc").write_text("#!/bin/sh\n# version 2\n")
    (programs / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(EntryUnfit, match="another cc"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))
    (programs / "cc").unlink()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(EntryUnfit, match="cc, which cannot be read here"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))


def test_compiler_that_nobody_can_find_is_no_evidence(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert [(i.kind, "not on PATH" in i.why) for i in scan(TORCH, project.cache)[1]] == [("outside", True)]


def fake_torch(folder: Path, version: str) -> Path:
    (folder / "torch" / "include").mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def test_upgrade_of_torch_in_place_is_seen(tmp_path: Path) -> None:
    """Its headers are no inputs for ninja, and its path is the same: only its version tells (pytorch#68905)."""
    packages = fake_torch(tmp_path / "packages", "2.12.0")
    project = Project(tmp_path / "project")
    project.build(PYTHONPATH=str(packages))
    made = project.entry()
    fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))
    (packages / "torch" / "version.py").write_text("__version__ = '2.13.0'\n")
    with pytest.raises(EntryUnfit, match=r"another .*/torch/version\.py"):
        fill.bind(TORCH, made, CacheDir(str(tmp_path), ours=True))


def test_static_library_and_forced_header_are_inputs(tmp_path: Path) -> None:
    for name in ("libthing.a", "forced.h", "libshared.a", "libshared.so"):
        (tmp_path / name).write_text(name)
    commands = [f"ccache c++ -include {tmp_path}/forced.h -c $in", f"nvcc $in -L{tmp_path} -lthing -lshared -lnone"]
    files, programs = build_inputs.needs(commands)
    assert files == {f"{tmp_path}/forced.h", f"{tmp_path}/libthing.a"}
    assert programs == {"ccache", "c++", "nvcc", "gcc"}
    assert build_inputs.needs(["nvcc -ccbin g++-12 -c $in"])[1] == {"nvcc", "g++-12"}


def test_neither_an_orphan_lock_nor_its_build_travels(project: Project) -> None:
    """A builder killed half-way leaves `lock`: whoever finds it waits for ever."""
    (project.folder / "lock").touch()
    assert [item.kind for item in scan(TORCH, project.cache)[1]] == ["incomplete"]


def test_second_version_in_one_process_does_not_travel(project: Project) -> None:
    for path in project.folder.iterdir():
        text = path.read_bytes().replace(b"tiny.so", b"tiny_v1.so")
        if path.name in ("build.ninja", ".ninja_log"):
            path.write_bytes(text)
    (project.folder / "tiny.so").rename(project.folder / "tiny_v1.so")
    assert [item.kind for item in scan(TORCH, project.cache)[1]] == ["incomplete"]


def test_cut_off_build_is_no_entry(project: Project) -> None:
    """Every state that a kill can leave: output without its line, line cut off, object without its record."""
    log, deps = project.folder / ".ninja_log", project.folder / ".ninja_deps"
    whole_log, whole_deps = log.read_bytes(), deps.read_bytes()
    lines = whole_log.splitlines(keepends=True)
    for data, kind in (
        (b"".join(lines[:-1]), "incomplete"),
        (whole_log[:-30], "torn"),
        (lines[0], "incomplete"),
        (b"# ninja log v4\n", "unknown"),
        (b"", "torn"),
    ):
        log.write_bytes(data)
        assert [item.kind for item in scan(TORCH, project.cache)[1]] == [kind], data
    log.write_bytes(whole_log)
    for data, kind in (
        (whole_deps[:16], "incomplete"),
        (whole_deps[:-4], "torn"),
        (b"# ninjadeps\n\3\0\0\0", "unknown"),
    ):
        deps.write_bytes(data)
        assert [item.kind for item in scan(TORCH, project.cache)[1]] == [kind], data


def test_cut_off_library_is_not_published(project: Project) -> None:
    library = project.folder / "tiny.so"
    status = library.stat()
    library.write_bytes(library.read_bytes()[:1000])
    os.utime(library, ns=(status.st_mtime_ns, status.st_mtime_ns))
    with pytest.raises(EntryRefused, match=r"tiny\.so is cut off"):
        project.entry()


def test_entry_without_its_list_of_sources_is_not_believed(project: Project, tmp_path: Path) -> None:
    made = project.entry()
    (log,) = [file for file in made.files if file.name.endswith(".ninja_log")]
    lines = bytes(log.data).splitlines(keepends=True)
    without = b"".join(line for line in lines if line.count(b"\t") != 2)
    assert without != log.data
    for strange in (b"", b"# input\tabc\trelative\n", b"# secret\tabc\t/etc/passwd\n", b"# input\n"):
        bad = tuple(file._replace(data=without + strange) if file is log else file for file in made.files)
        with pytest.raises(EntryRefused):
            fill.bind(TORCH, made._replace(files=bad), CacheDir(str(tmp_path), ours=True))


def test_entry_with_less_than_its_log_says(project: Project, tmp_path: Path) -> None:
    made = project.entry()
    less = tuple(file for file in made.files if not file.name.endswith("tiny.o"))
    with pytest.raises(EntryRefused, match=r"tiny\.o' is missing"):
        fill.bind(TORCH, made._replace(files=less), CacheDir(str(tmp_path), ours=True))


@pytest.mark.parametrize("name", ["elsewhere.so", "../tiny/x.so", "cpython-311-torch-2/deep", ".ninja_log"])
def test_file_outside_any_build_is_not_written(project: Project, tmp_path: Path, name: str) -> None:
    made = project.entry()
    strange = (*made.files, made.files[0]._replace(name=name))
    with pytest.raises(EntryRefused, match="not a file that torch-extensions keeps"):
        fill.bind(TORCH, made._replace(files=strange), CacheDir(str(tmp_path), ours=True))


def test_every_source_is_its_own_entry(project: Project, tmp_path: Path) -> None:
    """Under one key for all, the first version would stay for ever and every later one be cold."""
    first = project.entry().address
    project.header.write_text("#define ANSWER 2\n")
    project.build()
    second = project.entry().address
    assert first.key != second.key
    assert first.key.split("@")[0] == second.key.split("@")[0]
    again = Project(tmp_path / "again")
    again.build()
    assert again.entry().address.key != first.key  # another checkout: other paths in the plan


def test_inline_sources_do_not_share_a_key(tmp_path: Path) -> None:
    """They lie in the cache under one name, and neither the plan nor a command says what is in them."""
    project = Project(tmp_path / "project")
    plan = project.folder / "build.ninja"
    keys = set()
    for answer in (1, 2):
        assert f'"answer": {answer}' in project.build(inline=f"int answer(void) {{ return {answer}; }}\n")
        text = plan.read_text()
        plan.write_text(text.replace(str(project.cache), TORCH.root))  # as the command would see it
        deps = ninja.read_deps((project.folder / ".ninja_deps").read_bytes())
        seen = {out: [path.replace(str(project.cache), TORCH.root) for path in read] for out, (_, read) in deps.items()}
        (project.folder / ".ninja_deps").write_bytes(write_deps(seen, time.time_ns()))
        (made,) = entries(TORCH, project.cache)
        keys.add(made.address.key)
        assert f"{VERSION}/tiny/main.cpp" in [file.name for file in made.files]
        plan.write_text(text)
    assert len(keys) == 2


def test_partly_rebuilt_entry_travels_whole(project: Project, tmp_path: Path) -> None:
    """Filled, then linked again with other flags: object from the fill, library new; both travel together."""
    room = project.fill(project.entry(), tmp_path / "room")
    before = (room / VERSION / "tiny" / "tiny.o").stat().st_ino
    (room / VERSION / "tiny" / "tiny.so").unlink()
    assert '"built": ["tiny.so"]' in project.build(room)
    assert (room / VERSION / "tiny" / "tiny.o").stat().st_ino == before
    (made,) = entries(TORCH, room)
    assert len(made.files) == 5


def test_times_of_a_filled_entry(project: Project, tmp_path: Path) -> None:
    room = project.fill(project.entry(), tmp_path / "room") / VERSION / "tiny"
    newest = max(project.source.stat().st_mtime_ns, project.header.stat().st_mtime_ns)
    assert (room / "tiny.o").stat().st_mtime_ns == newest
    assert (room / "tiny.so").stat().st_mtime_ns == newest
    assert (room / "build.ninja").stat().st_mtime_ns == LONG_AGO


def test_plan_with_the_real_path_of_the_room_does_not_travel(tmp_path: Path) -> None:
    """The command resolved its fixed path, or was started without it: nobody else has that directory."""
    cache = Handmade(TORCH, tmp_path)
    cache.write(f"{VERSION}/one", "one.so", f"{VERSION}/one/main.cpp")
    plan = tmp_path / VERSION / "one" / "build.ninja"
    plan.write_text(plan.read_text().replace(fixed_place.ROOT + "/torch-extensions", str(tmp_path)))
    assert [(item.kind, str(tmp_path) in item.why) for item in scan(TORCH, tmp_path)[1]] == [("outside", True)]


def test_cache_made_without_ondol_is_adopted(project: Project, tmp_path: Path) -> None:
    """PyTorch's own folder of versions is not ours: nobody would ever ask for it under that name."""
    theirs = tmp_path / "torch_extensions"
    shutil.copytree(project.cache / VERSION, theirs / "py311_cpu")
    found, refused = scan(TORCH, theirs, ours=False)
    assert found == []
    assert {item.kind for item in refused} == {"unknown"}


def test_plan_is_read_as_ninja_reads_it() -> None:
    plan = (
        "home = /opt/cuda\nflags = -I$home/include $\n    -DX=${name}\nname = x\n# comment\n\n"
        "rule cc\n  command = $home/bin/nvcc $flags -c $in -o $out $$HOME\n  deps = gcc\n"
        "build with$ space.o | other: cc a$:b.cu | implicit.h || order\n  local = 1\ndefault x\n"
    )
    (edge,) = ninja.read_plan(plan.encode())
    assert edge.outputs == ("with space.o", "other")
    assert edge.inputs == ("a:b.cu", "implicit.h", "order")
    assert edge.command == "/opt/cuda/bin/nvcc -I/opt/cuda/include -DX= -c $in -o $out $HOME"
    assert edge.has_deps


@pytest.mark.parametrize(
    "plan",
    [b"", b"\xff\xfe", b"build x", b"build x: nothing y\n", b"subninja other.ninja\n", b"include a\n", b"build : cc\n"],
)
def test_plan_that_cannot_be_judged_is_left_alone(plan: bytes) -> None:
    with pytest.raises(EntryRefused):
        ninja.read_plan(plan)


def test_books_survive_a_round_trip(project: Project) -> None:
    data = (project.folder / ".ninja_deps").read_bytes()
    deps = ninja.read_deps(data)
    mtime = next(iter(deps.values()))[0]
    assert write_deps({output: inputs for output, (_, inputs) in deps.items()}, mtime) == data
    later = ninja.read_deps(ninja.dated_deps(data, mtime + 2**33))
    assert later == {output: (mtime + 2**33, inputs) for output, (_, inputs) in deps.items()}
    for length in range(len(data)):
        try:
            assert set(ninja.read_deps(data[:length])) <= set(deps)
        except EntryRefused:
            continue


def test_other_processors_code_is_refused(project: Project) -> None:
    assert TORCH.accepts(project.entry().address.fingerprint, HOST)
    assert not TORCH.accepts("x86_64-glibc-2.17-0123456789ab", HOST)
