"""PyTorch Inductor 2.11 to 2.13, the compiler behind `torch.compile`.

    <cache>/fxgraph/<xx>/f<key>/<name>      a compiled graph: a pickle with the generated source and its Triton kernels
            aotautograd/a<key>/<name>       a traced function: a pickle that names its graphs by key
            <xx>/c<key>.main.cpp, .main.so  C++ kernels
            <xx>/c<key>.cpp, .so            probes, which find out what the processor can do
            <xx>/<key>.best_config          the fastest configuration of a Triton kernel, as JSON
            precompiled_headers/c<key>.h, .h.gch      below TMPDIR whatever Inductor is told; see `Row.below_tmp`

A key directory holds a file for each set of guards (`guards_expr`) under which the graph was compiled, and torch takes
the first whose guards hold. Names are hashes of the content, which is never twice the same: it holds times and paths.
So an entry is known by its key and its guards.

Tried: any subset of whole files is at worst a miss. Torn ones are worse: an emptied library is an ImportError, a cut
one a SIGBUS; a cut probe makes torch believe in a lesser processor, and every later compile fails; a cut header is a
fatal error; a cut pickle is a warning. Every compile opens lock files for writing, also when it hits: to another user a
shared cache is a PermissionError. And a GPU's graph names its `best_config` by absolute path: moved, it is tuned again
and the result written to where it came from; copied, it reads the original. (Triton's files in it hold paths too, in
what is for debuggers.)

What torch's keys leave out. A graph's key does not know the processor, and its C++ is written for one vector width:
with the graph of an AVX-512 machine an AVX2 machine computes wrong numbers and says nothing; so does the same machine
under another ATEN_CPU_CAPABILITY. A kernel's key holds the compiler's command line, with `-march=native` and the path
of torch's headers, but neither the compiler's version nor what is in the headers: when torch is upgraded in its place,
old kernels are hits. So a kernel is bound to the torch that it names, as that is now. A probe's key has all of it.

Left out: sources and Python code, which are written anew from the graph; Triton's own cache, which graphs carry; the
benchmarks of max-autotune (`cache/`), one growing file that cannot be merged and that crashes its reader if torn; what
Dynamo remembers of shapes (`dynamo/`), which would make a job's behaviour depend on other jobs; Clang's precompiled
headers, which are bound to their place.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ondol.errors import EntryRefused
from ondol.foreign_text import is_plain_name
from ondol.host import files, identity
from ondol.host.identity import Host
from ondol.tools import pickled, shapes
from ondol.tools.api import ANYWHERE, TUNED, CacheDir, Found, Refused, Tool, refused, tuned_here
from ondol.tools.table import BY_NAME

_GRAPHS = ("fxgraph", "aotautograd")
_HEADERS = "precompiled_headers"
#: Kept by Inductor and its relatives, of no use or of no right use elsewhere.
_LEFT_OUT = re.compile(
    r"locks|triton|cute|cache|dynamo|gcc|aoti_eager|autoheuristic|torch_cutlass|unhashed_kernel_inputs|halide-.*"
)
_CODE_FOLDER = re.compile(r"[a-z2-7]{2}")
#: Every path that an entry may have.
_PATHS = re.compile(
    r"fxgraph/[a-z2-7]{2}/f[a-z2-7]{51}/[a-z2-7]+|aotautograd/a[a-z2-7]{51}/[a-z2-7]+"
    r"|[a-z2-7]{2}/c[a-z2-7]{51}(\.main)?\.(cpp|so)|[a-z2-7]{2}/[0-9a-f]+\.best_config"
    r"|precompiled_headers/c[a-z2-7]{51}\.h(\.gch)?"
)
#: C++ source in a graph. Versions before ours include a header in the cache, by its absolute path.
_CPP = b"#include "
_ABSOLUTE_INCLUDE = b'#include "/'
_KERNEL = re.compile(rb"(?:cpp|triton)_(?:[a-z]+_)?fused_\w+")
_VERSION = re.compile(rb"# torch version: ([\w.+-]+)")
_TUNED = re.compile(r"(/.*)/[a-z2-7]{2}/[0-9a-f]{64}\.best_config")
#: The torch whose headers were compiled.
_TORCH = re.compile(rb"(/[\x21-\x7e]{1,300}?/torch)/include[/\x00]")
#: How a finished precompiled header begins: GCC writes `gpcWrite` first and this last.
_WHOLE_HEADER = b"gpch"
#: Stands for the cache directory in stored graphs. As long as any room's path, which is filled up with slashes: so a
#: graph is bound to a room without taking its pickle apart.
_CACHE = b"<the cache>".ljust(512, b"~")
#: A compile that seems to have taken longer is a broken clock.
_LONGEST_COMPILE = 3600.0


class Inductor(Tool):
    row = BY_NAME["inductor"]

    # -- from a cache directory to entries -------------------------------------------------------------------------

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        origin = _Origin(cache, host)
        for folder in cache.folders():
            if folder in _GRAPHS:
                yield from _scan_graphs(cache, origin, folder)
            elif folder == _HEADERS or _CODE_FOLDER.fullmatch(folder):
                yield from _scan_code(cache, origin, folder)
            elif not _LEFT_OUT.fullmatch(folder):
                yield Refused("unknown", folder, "not a directory that Inductor is known to keep")

    # -- path-free and back ----------------------------------------------------------------------------------------

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        del found
        if not data:
            raise EntryRefused(f"{name} is empty", because="torn")
        if not _is_whole(name, data):
            raise EntryRefused(f"{name} is cut off", because="torn")
        return _path_free(name, data, cache.seen_as) if name.startswith(_GRAPHS) else data

    def made_by(self, contents: Mapping[str, bytes]) -> str:
        for data in contents.values():
            version = _VERSION.search(data)
            if version:
                return version.group(1).decode()
        return ""

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        del names
        if not _PATHS.fullmatch(name):
            raise EntryRefused(f"{name!r:.80} is not a file that Inductor keeps", because="outside")
        if not name.startswith(_GRAPHS):
            return data
        path = os.fsencode(folder)
        if len(path) < len(_CACHE):
            return bytes(data).replace(_CACHE, path.ljust(len(_CACHE), b"/"))
        with _must_be_pickle(name):
            return pickled.replace(bytes(data), re.compile(re.escape(_CACHE)), path + b"/")

    def witness(self, names: tuple[str, ...]) -> str:
        return names[-1]  # the compiled one of a pair: torch looks whether its source is there, and reads only this

    def accepts(self, fingerprint: str, host: Host) -> bool:
        if fingerprint == ANYWHERE:
            return True
        if fingerprint.startswith(TUNED):
            return fingerprint == tuned_here()
        native = native_code(host)
        rest = fingerprint.removeprefix(native)
        torch = rest[rest.find("@") :].replace("@", "/") if "@" in rest else ""
        return fingerprint == (bound_to(native, torch) if torch else native)


TOOLS = (Inductor(),)


# -- what the keys leave out ---------------------------------------------------------------------------------------


def native_code(host: Host) -> str:
    """The fingerprint of what is made for the processor: how wide its vectors are, the compiler has a say too."""
    facts = [identity.compiler(os.environ), os.environ.get("ATEN_CPU_CAPABILITY", "")]
    return f"{shapes.host_code(host)}-{_digest(repr(facts).encode())}"


def bound_to(native: str, torch: str) -> str:
    """The fingerprint of what was compiled with the headers of the torch in this directory; empty if none is there."""
    try:
        version = files.read_regular(os.path.realpath(os.path.join(torch, "version.py")), 1 << 16)[0]
    except OSError:
        return ""
    mark = f"{native}-{_digest(version)}{torch.replace('/', '@')}"
    return mark if "@" not in torch and is_plain_name(mark) else ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


class _Origin:
    """Where the contents of a cache directory come from: which processor, which torch."""

    def __init__(self, cache: CacheDir, host: Host) -> None:
        self._cache = cache
        #: Who made an adopted cache, on which processor, is not written in it.
        self.native = native_code(host) if cache.ours else ""
        self._marks: dict[str, str] = {}
        self._of_headers: set[str] | None = None

    def of_code(self, path: str) -> str:
        """Empty if it is not known. Raises `OSError` if the file cannot be read."""
        if path.endswith(".best_config"):
            # Its key knows the architecture; what is fastest depends on the model and the driver as well.
            return tuned_here() if self._cache.ours else ""
        if not self.native or not path.endswith((".main.so", ".gch")):
            return self.native
        torch = self._torch(path)
        if not torch and len(self._all_of_headers()) == 1:
            (torch,) = self._all_of_headers()  # before 2.13 only the header that it was compiled with names it
        if torch not in self._marks:
            self._marks[torch] = bound_to(self.native, torch) if torch else ""
        return self._marks[torch]

    def _torch(self, path: str) -> str:
        return os.fsdecode(self._cache.search("", path, _TORCH))

    def _all_of_headers(self) -> set[str]:
        if self._of_headers is None:
            there = self._cache.listing(_HEADERS) if _HEADERS in self._cache.folders() else {}
            self._of_headers = {self._torch(f"{_HEADERS}/{name}") for name in there if name.endswith(".gch")}
        return self._of_headers


def _of_unknown_origin(cache: CacheDir, path: str) -> Refused:
    why = "made with a PyTorch that is gone or unknown" if cache.ours else "made for an unknown processor or device"
    return Refused("unknown", path, why)


# -- graphs --------------------------------------------------------------------------------------------------------


def _scan_graphs(cache: CacheDir, origin: _Origin, above: str) -> Iterator[Found | Refused]:
    seen: set[str] = set()  # two workers of a job that compile the same graph at once leave two files
    for folder, listing in cache.tree(above):
        if isinstance(listing, OSError):
            yield refused(folder, listing)
            continue
        for name in sorted(listing):
            path = f"{folder}/{name}"
            if not _PATHS.fullmatch(path):
                continue  # a temporary file, `.<pid>.<thread>.tmp`
            item = _graph(cache, origin, path)
            if isinstance(item, Refused) or item.key not in seen:
                yield item
            if isinstance(item, Found):
                seen.add(item.key)


def _graph(cache: CacheDir, origin: _Origin, path: str) -> Found | Refused:
    try:
        data = cache.read("", path)
    except OSError as error:
        return refused(path, error)
    if not _is_whole(path, data):
        return Refused("torn", path, "cut off" if data else "empty")
    if _ABSOLUTE_INCLUDE in data:
        return Refused("outside", path, "its source includes a file by its absolute path")
    mark = origin.native if _CPP in data else ANYWHERE
    if not mark:
        return _of_unknown_origin(cache, path)
    folder, _, name = path.rpartition("/")
    key = folder.rpartition("/")[2]
    guards = pickled.field(data, "guards_expr", "str", name)
    if guards:
        key += "-" + _digest(guards.encode())
    # Not of a function: its time is that of its graphs.
    seconds = (pickled.field(data, "_time_taken_ns", "int", 0) or 0) / 1e9 if key.startswith("f") else 0.0
    kernel = _KERNEL.search(data)
    title = kernel.group().decode()[:80] if kernel else f"{'graph' if key.startswith('f') else 'function'} {key[1:9]}"
    return Found(key, mark, "", (path,), title, seconds if 0 < seconds < _LONGEST_COMPILE else 0.0)


def _path_free(name: str, data: bytes, cache: str) -> bytes:
    """The cache's path, with all slashes after it, becomes `_CACHE`; in an adopted cache also where it was made."""
    roots = {cache}
    with _must_be_pickle(name):
        if b".best_config" in data:
            roots |= {match.group(1) for match in map(_TUNED.fullmatch, pickled.texts(data)) if match}
        anywhere = re.compile(b"(?:" + b"|".join(re.escape(os.fsencode(root.rstrip("/"))) for root in roots) + b")/*")
        return pickled.replace(data, anywhere, _CACHE) if anywhere.search(data) else data


@contextmanager
def _must_be_pickle(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise EntryRefused(f"{name} is not a pickle", because="torn")


# -- compiled code -------------------------------------------------------------------------------------------------


def _scan_code(cache: CacheDir, origin: _Origin, folder: str) -> Iterator[Found | Refused]:
    try:
        listing = cache.listing(folder)
    except OSError as error:
        yield refused(folder, error)
        return
    for name in listing:
        names = tuple(f"{folder}/{part}" for part in _unit(name, listing))
        if names and all(map(_PATHS.fullmatch, names)):
            yield _code(cache, origin, names, listing)


def _code(
    cache: CacheDir, origin: _Origin, names: tuple[str, ...], listing: Mapping[str, os.stat_result]
) -> Found | Refused:
    folder, _, last = names[-1].rpartition("/")
    if any(listing[path.rpartition("/")[2]].st_size == 0 for path in names):
        return Refused("torn", names[-1], "empty")
    try:
        mark = origin.of_code(names[-1])
    except OSError as error:
        return refused(names[-1], error)
    if not mark:
        return _of_unknown_origin(cache, names[-1])
    return Found(f"{folder}--{last}", mark, "", names, _title(last), 0.0)


def _unit(name: str, listing: Mapping[str, os.stat_result]) -> tuple[str, ...]:
    """The files of the entry that is complete with the file `name`, which comes last; empty if it completes none."""
    if name.endswith(".best_config"):
        return (name,)
    for end, source in ((".so", ".cpp"), (".gch", "")):
        if name.endswith(end) and name.removesuffix(end) + source in listing:
            return name.removesuffix(end) + source, name
    return ()


def _is_whole(name: str, data: bytes) -> bool:
    if name.startswith(_GRAPHS):
        return data[:1] == b"\x80" and data[-1:] == b"."
    if name.endswith(".so"):
        return shapes.whole_elf(data)
    if name.endswith(".gch"):
        return data.startswith(_WHOLE_HEADER)
    return shapes.whole_json(data, dict) if name.endswith(".best_config") else bool(data)


def _title(name: str) -> str:
    kinds = {".best_config": "tuning result", ".main.so": "C++ kernel", ".so": "probe of the processor"}
    kind = next((kind for end, kind in kinds.items() if name.endswith(end)), "precompiled header")
    return f"{kind} {name[1:9]}"
