"""Tools that are made of shapes, with a look at whether a file is whole. Each states what it is like as a class; a tool
that walks its cache itself, or holds paths in it, has a file of its own.
"""

import hashlib
import io
import os
import re
import struct
import sys
import zlib
from typing import Any

from ondol.errors import EntryRefused
from ondol.host import zstd
from ondol.tools import pickled
from ondol.tools.api import MAX_FILE_BYTES, CacheDir, Found
from ondol.tools.shapes import Listing, Shape, Shaped, Snapshots, parsed, whole_elf, whole_json
from ondol.tools.table import BY_NAME


class CudaDriver(Shaped):
    """The NVIDIA driver's cache of PTX that it compiled: `<x>/<y>/<14 hexadecimal digits>`, and an `index`.

    Measured on driver 580: a file holds its own key (driver build, target, PTX) and its code, and opens with both
    lengths; one that is missing, cut or garbled is compiled again; files of two caches together all hit, also without
    an index; directories are 0700, so that other users compile everything again. Nothing is published about the format,
    so a file whose lengths do not add up does not travel.
    """

    row = BY_NAME["cuda-driver"]
    shapes = (Shape(r"[0-9a-f]/[0-9a-f]/[0-9a-f]{14}", driver=True),)
    ignored = (r"index",)

    @staticmethod
    def _is_whole(data: bytes) -> bool:
        """It begins with a version, the length of the key, the length of the code, and a checksum."""
        head = struct.Struct("<IQQ8s")
        return len(data) >= head.size and head.size + sum(head.unpack_from(data)[1:3]) == len(data)

    wholes = {"": _is_whole}


class CudaPython(Shaped):
    """cuda.core 1.2, `FileStreamProgramCache`: one file per program, `entries/<2>/<62>`: the bare cubin, PTX or LTO-IR.

    Facts: written in `tmp/` with mode 0600, synced and renamed; the key covers compiler, linker and, where it matters,
    the driver. The directory is an argument of the program, so no variable of ours moves it.
    """

    row = BY_NAME["cuda-python"]
    shapes = (Shape(r"entries/[0-9a-f]{2}/[0-9a-f]{62}"),)
    ignored = (r"tmp(?:/.*)?",)
    wholes = {"": lambda data: not data.startswith(b"\x7fELF") or whole_elf(data)}


class CuPy(Shaped):
    """CuPy 14: one file per kernel, `<sha1 of the key>.cubin`, which begins with the SHA-1 of the rest in hexadecimal.

    Facts: written aside and renamed, but with mkstemp's mode 0600, so that another user's CuPy ends with a
    PermissionError instead of compiling (seen on an H200). The key covers compiler, options, architecture and CuPy's
    own headers.
    """

    row = BY_NAME["cupy"]
    shapes = (Shape(r"[0-9a-f]{40}\.(?:cubin|ltoir|hsaco)"),)
    #: Sources kept on request, and mkstemp's names.
    ignored = (r".+\.cu", r"tmp[a-z0-9_]{8}")
    wholes = {"": lambda data: data[:40] == hashlib.sha1(data[40:], usedforsecurity=False).hexdigest().encode()}


class CuTile(Snapshots):
    """cuTile 1.7: one SQLite database, `cache.db`, with a row per kernel.

    Facts: any error of SQLite's makes cuTile unlink the database and begin again; a mere look-up writes the time of use
    into it. So what counts are its keys, and it travels only between two transactions and only if SQLite finds it
    whole.
    """

    row = BY_NAME["cutile"]
    shapes = (Shape(r"cache\.db"),)
    ignored = (r"cache\.db-(?:journal|wal|shm)",)

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        # What SQLite keeps beside a database while a transaction is open, or after one was cut off.
        for path in (f"{place}-journal", f"{place}-wal"):
            if path in listing and listing[path].st_size:
                raise EntryRefused(f"{path} holds a transaction that is not finished", because="torn")
        return super().finish(cache, place, listing, found)

    def check(self, name: str, data: bytes) -> None:
        """The header against the length: what a copy that was cut off cannot hide."""
        page = int.from_bytes(data[16:18], "big")
        page = 65536 if page == 1 else page
        if not data.startswith(b"SQLite format 3\0") or page * int.from_bytes(data[28:32], "big") != len(data):
            raise EntryRefused(f"{name} is not a whole database", because="torn")

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        """The keys, in order, of a database that nobody is writing. Nothing is written, no lock is taken."""
        del data
        try:
            import sqlite3
        except ImportError:
            raise EntryRefused("this Python has no SQLite to look with", because="unreadable")
        from urllib.parse import quote

        file = f"file:{quote(os.path.join(cache.path, path))}?mode=ro&immutable=1"
        connection = sqlite3.connect(file, uri=True)
        try:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise EntryRefused("SQLite finds the database damaged", because="torn")
            keys = [str(row[0]) for row in connection.execute("SELECT key FROM cache ORDER BY key")]
        except sqlite3.Error as error:
            raise EntryRefused(f"SQLite refuses the database: {error}", because="torn")
        finally:
            connection.close()
        if not keys:
            raise EntryRefused("the database holds no kernels", because="incomplete")
        return "\n".join(keys).encode()


class CuteDsl(Shaped):
    """CuTe DSL of CUTLASS 4.8: one file per function, `cute_dsl_<hash>.mlir`, bytecode that ends in its CRC-32.

    Facts: written in `tmp.pid_<pid>_<uuid>/` and renamed; a bad file is a warning and compiled again. The hash covers
    the DSL's sources and libraries, the module, options and target. `*.facts` are notes about source text, made in no
    time.
    """

    row = BY_NAME["cute-dsl"]
    shapes = (Shape(r"cute_dsl_[0-9a-f]+\.mlir", library=True),)
    ignored = (r"tmp\.pid_.*", r"[0-9a-f]{32}\.v\d+\.facts(?:\..*)?")
    wholes = {"": lambda data: len(data) > 4 and zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], sys.byteorder)}


class DeepGemm(Shaped):
    """DeepGEMM 2: one directory per kernel, `cache/kernel.<name>.<digest>/` with `kernel.cu` and `kernel.cubin`.

    Facts: built in `tmp/<uuid>/`, synced, and renamed whole; a directory that lacks one of the two files is an
    assertion that ends the user's program, so it never travels. The digest covers compiler version, flags (with the
    absolute path of DeepGEMM's headers) and code with the hash of its includes.
    """

    row = BY_NAME["deepgemm"]
    shapes = (Shape(r"cache/kernel\.(?P<title>.+)\.[0-9a-f]+", folder=True, needs=(r"kernel\.cubin", r"kernel\.cu")),)
    ignored = (r"tmp(?:/.*)?",)
    wholes = {".cubin": whole_elf}


class Helion(Shaped):
    """Helion 1.5: one JSON file per kernel and shape, `<sha256>.best_config`: the configuration that its search found.

    Facts: written aside and renamed; a bad file is searched again. The usual key (`LocalAutotuneCache`) knows device
    and CUDA version, not the versions of Helion, Triton and PyTorch; only results under the strict key, which knows
    them all, travel. Driver and device models are our fingerprint's part.
    """

    row = BY_NAME["helion"]
    shapes = (Shape(r"[0-9a-f]{64}\.best_config", tuned=True),)
    #: Kernels, where nobody manages triton and cute-dsl, and generated sources.
    ignored = (r"tmp\..*", r"(?:triton|cute|backward)(?:/.*)?")

    def check(self, name: str, data: bytes) -> None:
        fields = parsed(name, data)
        key = fields.get("key") if isinstance(fields, dict) else None
        if not isinstance(key, dict) or not isinstance(fields.get("config"), str):
            raise EntryRefused(f"{name} holds no configuration", because="torn")
        if key.get("type") != "StrictAutotuneCacheKey":
            raise EntryRefused(f"{name} was found under a key that knows no library versions", because="loose")


class Jax(Shaped):
    """JAX 0.10: one file per compiled program, `<module>-<sha256>-cache`; a time of last use beside it under a size
    limit.

    Facts: files are written in place, so a killed job leaves a torn one, which JAX reads with a warning and compiles
    again; a compressed executable names neither its directory nor its user. The key covers JAX, XLA, the program and
    the device kind, not the processor's features: XLA's CPU code for another machine is refused or dies there.
    """

    row = BY_NAME["jax"]
    shapes = (Shape(r"(?P<title>[^/]+)-[0-9a-f]{64}-cache", host_code=True),)
    ignored = (r".*-atime", r"\.lockfile", r"xla_gpu_.*")

    @staticmethod
    def _is_whole(data: bytes) -> bool:
        """zlib where Python has no zstandard; both end in a check of their own, which is read by unpacking."""
        try:
            if data.startswith(b"\x28\xb5\x2f\xfd"):
                size = zstd.read_frame(data).content_size
                return size is not None and size <= MAX_FILE_BYTES and len(zstd.codec().decompress(data, size)) == size
            reader = zlib.decompressobj()
            reader.decompress(data)
            return reader.eof
        except (zstd.ZstdError, zlib.error):
            return False

    wholes = {"": _is_whole}


class MIOpen(Snapshots):
    """MIOpen 3: text files of `key=value` lines, `<device>.<backend>.<version>.{ufdb,udb}.txt`, to which results are
    added.

    Facts: a new line is appended in place, a changed one makes the file anew beside it (`.temp`) and renames it, under
    a lock in the temporary directory. The name holds device and version. What MIOpen compiled (`*.ukdb`) has no version
    in a directory that we name, so that one MIOpen would be served another one's kernels: not ours to share.
    """

    row = BY_NAME["miopen"]
    shapes = (Shape(r"(?P<title>[^/]+\.\d+_\d+_\d+[^/]*\.uf?db\.txt)", tuned=True),)
    ignored = (r".+\.temp", r".+\.ukdb(?:-.*)?")
    wholes = {"": lambda data: data.endswith(b"\n") and all(b"=" in line for line in data.splitlines())}

    def essence(self, cache: CacheDir, path: str, data: bytes) -> bytes:
        del cache, path
        return b"\n".join(sorted(data.splitlines()))


class Numba(Snapshots):
    """Numba 0.68: a directory per source directory; in it an index per function and Python, and numbered code files.

    <name>_<sha1 of the source's directory>/<module>.<function>-<line>.py311.nbi       pickles: version; stamp, table
                                            <module>.<function>-<line>.py311.<n>.nbc   one signature's code

    Facts: an index or code file that is cut off ends the user's program (`pickle data was truncated`). The table is
    written before the code that it names, so that a job killed in between leaves an index that names nothing, or the
    code of an older source. New signatures change the index in place. Pickles are looked at, never loaded.
    """

    _index = r"(?P<above>[^/]+_[0-9a-f]{40})/(?P<title>[^/]+-[^/]+)\.py\d+[a-z]*"
    row = BY_NAME["numba"]
    shapes = (Shape(_index + r"\.nbi", library=True),)
    ignored = (r".+\.tmp\.[0-9a-f]{16}", _index + r"\.\d+\.nbc")

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        unit = super().finish(cache, place, listing, found)
        folder, _, name = place.rpartition("/")
        told = {text for text in self._told(place, cache.read("", place)) if isinstance(text, str)}
        code = sorted(text for text in told if self._is_code_of(name, text))
        missing = [one for one in code if one not in listing or not listing[one].st_size]
        if missing or not code:
            raise EntryRefused(f"no {missing[0]}" if missing else "names no code", because="incomplete")
        if max(listing[one].st_mtime_ns for one in code) < listing[name].st_mtime_ns:
            raise EntryRefused("the index is newer than all its code: who wrote it was cut off", because="mixed")
        return unit._replace(names=(place, *(f"{folder}/{one}" for one in code)))

    def check(self, name: str, data: bytes) -> None:
        self._told(name, data)

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        del folder
        index = [other for other in names if other.endswith(".nbi")]
        if len(index) != 1 or not re.fullmatch(self.shapes[0].path, index[0]):
            raise EntryRefused("not one Numba index", because="outside")
        if name not in index and not self._is_code_of(index[0], name):
            raise EntryRefused(f"{name!r:.80} is not a file of {index[0]}", because="outside")
        return data

    def witness(self, names: tuple[str, ...]) -> str:
        """Code: the index is read on a miss too."""
        return next((name for name in names if name.endswith(".nbc")), names[0])

    @staticmethod
    def _is_code_of(index: str, name: str) -> bool:
        return bool(re.fullmatch(re.escape(index.removesuffix("nbi")) + r"\d+\.nbc", name))

    @staticmethod
    def _told(name: str, data: bytes) -> list[Any]:
        """The arguments of the instructions in a pickle, or in the two of an index; none is carried out."""
        stream, found = io.BytesIO(data), []
        try:
            for _ in range(2 if name.endswith(".nbi") else 1):
                found += [argument for _, argument, _ in pickled.operations(stream)]
        except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
            raise EntryRefused(f"{name} is cut off: {error}", because="torn")
        if stream.tell() != len(data):
            raise EntryRefused(f"{name} does not end where it should", because="torn")
        return found


class SglangJit(Shaped):
    """SGLang's JIT 0.5: a leaf per module, options and contents of everything it includes.

    <target>/<module>/build-<key>/deps-<key>/sgl_deps.json    the files it was built from, path-free, with their digests
                                             <module>.so
                                             build.ninja, *.o, *.o.d   what is left of the build: absolute paths

    Facts: built in `.staging-<uuid>/` and renamed whole; a leaf is used only if the list's digests, taken again, give
    its name. A library that cannot be loaded is built again.
    """

    _leaf = r"[^/]+/(?P<title>[^/]+)/build-[0-9a-f]{16}/deps-[0-9a-f]{16}"
    row = BY_NAME["sglang-jit"]
    shapes = (Shape(_leaf + r"/sgl_deps\.json", library=True, partners=("{title}.so",)),)
    ignored = (_leaf + r"/(?!sgl_deps\.json$).+", r".+/\.staging-[^/]+(?:/.*)?", r".+/\.lock")
    wholes = {".so": whole_elf, ".json": lambda data: whole_json(data, list)}


class TileLang(Shaped):
    """TileLang 0.1.15: a directory per kernel, with a manifest of digests; per autotuning result; per device binary.

    <version>/<platform>/kernels/<sha256>/{manifest.json,params.json,device_kernel.cu,host_kernel.cu,executable.so …}
    <version>/<platform>/autotuner/<sha256>/{best_config.json,function.pkl,latency.json,params.json,executable.so …}
    <version>/cuda-binaries/<sha256>/{metadata.json,kernel.cubin}

    Facts: each is staged in `.staging/` and renamed whole. A kernel that does not match its manifest is removed and
    made again, also in a shared cache; an autotuning result has no manifest, and TileLang unpickles what it finds: a
    torn one ends the user's program. Some backends add files to a kernel's directory later; what is not in the manifest
    stays.
    """

    _key = "[0-9a-f]{64}"
    row = BY_NAME["tilelang"]
    shapes = (
        Shape(rf"[^/]+/[^/]+/kernels/{_key}", folder=True, needs=(r"manifest\.json",), library=True),
        Shape(
            rf"[^/]+/[^/]+/autotuner/{_key}",
            folder=True,
            needs=(
                r"best_config\.json",
                r"function\.pkl",
                r"latency\.json",
                r"out_idx\.json",
                r"params\.json",
                r"device_kernel\..+",
                r"host_kernel\..+",
                r"executable\.so|kernel_lib\.so|kernel\.cubin|kernel\.py",
            ),
            tuned=True,
        ),
        Shape(rf"[^/]+/[a-z]+-binaries/{_key}", folder=True, needs=(r"metadata\.json", r"kernel\..+")),
    )
    ignored = (r"(?:.+/)?\.staging(?:/.*)?", r".+/\.[^/]+\.tmp[^/]*")
    wholes = {
        ".json": whole_json,
        ".so": whole_elf,
        ".cubin": whole_elf,
        ".pkl": lambda data: data.startswith(b"\x80") and data.endswith(b"."),
    }

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        if "manifest.json" not in listing:
            return found
        listed = self._listed(cache, place)
        missing = sorted(set(listed) - set(listing))
        if missing:
            raise EntryRefused(f"no {missing[0]}", because="incomplete")
        return found._replace(names=tuple(sorted(f"{place}/{name}" for name in (*listed, "manifest.json"))))

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        folder, _, base = name.rpartition("/")
        if f"{folder}/manifest.json" in found.names and base != "manifest.json":
            self._compare(name, data, self._listed(cache, folder)[base])
        elif f"{folder}/metadata.json" in found.names and base != "metadata.json":
            self._compare(name, data, parsed("metadata.json", cache.read_metadata(folder, "metadata.json")))
        return super().detach(found, name, data, cache)

    def made_by(self, contents: Any) -> str:
        return str(next(iter(contents), "")).partition("/")[0]

    @staticmethod
    def _compare(name: str, data: bytes, said: Any) -> None:
        if not isinstance(said, dict) or hashlib.sha256(data).hexdigest() != said.get("sha256"):
            raise EntryRefused(f"{name} is not what its manifest says", because="torn")

    @staticmethod
    def _listed(cache: CacheDir, folder: str) -> dict[str, Any]:
        fields = parsed("manifest.json", cache.read_metadata(folder, "manifest.json"))
        listed = fields.get("files") if isinstance(fields, dict) else None
        if not isinstance(listed, dict) or not listed:
            raise EntryRefused("the manifest names no files", because="torn")
        return listed


class Warp(Shaped):
    """NVIDIA Warp 1.19: a directory per module and hash; in it a binary per target, one source and one `.meta` for all.

    <version>/wp_<module>_<hash>/wp_<module>_<hash>.{cu,sm80.cubin,sm90.cubin,cpp,cpu870d85ff.o,meta}
    <version>/lto/<hash>.lto, with .meta or _fatbin.lto where there is one

    Facts: built in `<directory>_p<pid>_t<thread>/` and renamed, or moved in file by file where the directory is there.
    A second target adds its binary later, so each binary is an entry, with the `.meta` that it needs. A module without
    its hash in the name (`strip_hash`) says nothing about its contents and stays behind.
    """

    _module = r"[^/]+/(?P<module>wp_(?P<title>[^/]+)_[0-9a-f]{7})/(?P=module)"
    row = BY_NAME["warp"]
    shapes = (
        Shape(_module + r"\.sm\d+[a-z]?\.(?:cubin|ptx)", partners=("{module}.meta",)),
        Shape(_module + r"(?:\.cpu[0-9a-f]+)?\.o", host_code=True, partners=("{module}.meta",)),
        Shape(r"[^/]+/lto/(?P<hash>[0-9a-f]{16})(?:\.meta|_fatbin\.lto)", partners=("{hash}.lto",)),
        Shape(r"[^/]+/lto/[0-9a-f]{16}\.lto"),
    )
    #: Sources are for people; a build that is not finished is nobody's.
    ignored = (_module + r"\.(?:cu|cpp|meta)", r"[^/]+/[^/]+_p\d+_t\d+(?:/.*)?")
    wholes = {".o": whole_elf, ".cubin": whole_elf, ".meta": whole_json}


TOOLS = (
    CudaDriver(),
    CudaPython(),
    CuPy(),
    CuTile(),
    CuteDsl(),
    DeepGemm(),
    Helion(),
    Jax(),
    MIOpen(),
    Numba(),
    SglangJit(),
    TileLang(),
    Warp(),
)
