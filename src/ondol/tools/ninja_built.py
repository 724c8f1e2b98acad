"""Caches that ninja builds in: a directory each, with the plan, ninja's books, objects and a library. The tools
that have such caches are here too: what is where, and what each of them forgets.

Such a directory is right only beside its sources, headers and compiler, and ninja judges that by times alone. So an
entry is stored with the SHA-256 of everything that it was made from, and a room gets it only if all of that is the
same here; then it gets times with which ninja agrees.

    what is given                          the time it gets          why
    outputs (objects, the library)         newest input's, here      not older than any input; older than any later edit
    sources that the tool wrote in here    long ago                  rewritten, they are newer than the outputs
    the lines of ninja's books             now                       when the inputs were known to be the right ones

In the stored form the books have no times, and the log ends with lines that ninja does not know:

    # input <sha256> <path>      read by a command, and ninja knows it
    # beside <sha256> <path>     read, and ninja does not know it: static libraries, the version of a package
    # program <sha256> <name>    the compilers

Nothing is packed whose inputs changed after it was built; for files outside that is their ctime, which no `touch` and
no archive can set back.
"""

import hashlib
import os
import posixpath
import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from ondol.errors import EntryRefused, EntryUnfit
from ondol.host import fixed_place
from ondol.tools import build_inputs, ninja
from ondol.tools.api import CacheDir, Found, Settled
from ondol.tools.shapes import Listing, Shape, Shaped, version_key, whole_elf
from ondol.tools.table import BY_NAME

Data = bytes | memoryview
#: The first moment of the year 2000: older than any edit, and not zero, which ninja takes for "is not there".
LONG_AGO = 946_684_800 * 10**9
#: What clang writes as an object with -flto.
_BITCODE = b"BC\xc0\xde"
_KINDS = ("input", "beside", "program")
_MOST_INPUTS = 100_000
_WORKSPACE = r"\.cache/flashinfer/(?!cubins/)[^/]+/[^/]+"


class Origin(NamedTuple):
    """One thing that an entry was made from."""

    kind: str
    name: str
    sha256: str


class Build(NamedTuple):
    """A finished build, as its files tell."""

    #: All files that belong to it, relative to the cache directory.
    names: tuple[str, ...]
    log: ninja.NinjaLog
    origins: tuple[Origin, ...]
    #: Over the plan, the commands and the contents of every source, inside and outside.
    digest: str


class NinjaBuilt(Shaped):
    """A tool that builds with ninja. Subclasses state their build directories as shapes, and what lies beside them."""

    versioned = True
    #: Sources that the tool writes elsewhere in the cache, if it does.
    sources: str = ""

    @property
    def root(self) -> str:
        """Where the tool sees its cache, whatever the room is called."""
        return fixed_place.path(self.row.name)

    # -- from a cache directory to entries -------------------------------------------------------------------------

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        del listing
        if place in found.names:
            return found  # a file that belongs to no build
        build = self._read(cache, place)
        seconds = max(made.end for made in build.log.made.values()) / 1000
        return found._replace(key=version_key(place, build.digest), names=build.names, seconds=seconds)

    def _read(self, cache: CacheDir, folder: str) -> Build:
        """Raises `EntryRefused` unless everything that the plan asks for was made, from what is there now."""
        plan = _file(cache, folder, ninja.PLAN)
        edges = ninja.read_plan(plan)
        log = ninja.read_log(_file(cache, folder, ninja.LOG))
        deps: ninja.Deps = {}
        if any(edge.has_deps for edge in edges):
            deps = ninja.read_deps(_file(cache, folder, ninja.DEPS))
        places = _Places(cache, self.root, folder)
        for edge in edges:
            _check_edge(edge, log, deps, places)
        made = {output for edge in edges for output in edge.outputs}
        log = ninja.NinjaLog(log.version, {output: log.made[output] for output in made})
        origins = _origins(edges, places)
        books = {f"{folder}/{name}" for name in (ninja.PLAN, ninja.LOG, *([ninja.DEPS] if deps else []))}
        sources = places.found - set(map(places.inside, made))
        digest = _digest(plan, log, origins, {name: places.look(name) for name in sources})
        return Build(tuple(sorted({*books, *places.found})), log, origins, digest)

    # -- path-free and back ----------------------------------------------------------------------------------------

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        if not data:
            raise EntryRefused(f"{name} is empty", because="torn")
        folder, _, base = name.rpartition("/")
        if base in (ninja.LOG, ninja.DEPS):
            build = self._read(cache, folder)
            if version_key(folder, build.digest) != found.key:
                raise EntryRefused(f"{folder} changed while it was read", because="mixed")
            if base == ninja.DEPS:
                return ninja.dated_deps(data, 0)
            lines = [f"# {origin.kind}\t{origin.sha256}\t{origin.name}\n" for origin in build.origins]
            return ninja.write_log(build.log, 0) + "".join(lines).encode("utf-8", "surrogateescape")
        if name.endswith((".o", ".so")) and not data.startswith(_BITCODE) and not whole_elf(data):
            raise EntryRefused(f"{name} is cut off", because="torn")
        return data

    def attach(self, name: str, data: Data, names: tuple[str, ...], folder: str) -> Data:
        return data if re.fullmatch(self.sources, name) else super().attach(name, data, names, folder)

    def settle(self, contents: Mapping[str, Data], folder: str) -> Settled:
        names = tuple(contents)
        given = {name: self.attach(name, data, names, folder) for name, data in contents.items()}
        book = next((name for name in names if posixpath.basename(name) == ninja.LOG), None)
        if book is None:
            return Settled(given)  # a file that belongs to no build
        built = posixpath.dirname(book)
        stored = bytes(given[book])
        log = ninja.read_log(stored)
        newest, now = _verify(_read_origins(stored)), time.time_ns()
        if newest > now:
            raise EntryUnfit("one of its sources has a time in the future, so that no edit would look newer")
        given[book] = ninja.write_log(log, now)
        records = f"{built}/{ninja.DEPS}"
        if records in given:
            given[records] = ninja.dated_deps(bytes(given[records]), now)
        outputs = {_inside(self.root, built, output) for output in log.made}
        if not outputs <= set(names):
            raise EntryRefused(f"{sorted(outputs - set(names))[0]!r:.80} is missing from the entry", because="torn")
        times = {name: max(newest, LONG_AGO) if name in outputs else LONG_AGO for name in names}
        return Settled(given, times)

    def witness(self, names: tuple[str, ...]) -> str:
        return next((name for name in names if name.endswith(".so")), names[-1])


class TorchExtensions(NinjaBuilt):
    """PyTorch 2.13's `cpp_extension.load` and `load_inline`: one directory per extension, built in place by ninja.

    <cache>/<Python and PyTorch>/<name>/build.ninja .ninja_log .ninja_deps *.o <name>.so      (main.cpp: load_inline)
                                        lock        while it builds

    Facts: the directory's name is the extension's, whatever its sources; `lock` has no owner in it, so that the next
    process waits for ever for one that was killed; PyTorch's own headers are no inputs for ninja (`-isystem`), so that
    an upgrade in place rebuilds nothing; a changed source in the same process becomes `<name>_v1.so`, which a new
    process never asks for.
    """

    row = BY_NAME["torch-extensions"]
    shapes = (Shape(r"(?:\w+-\w+-torch-[^/]+|unknown)/(?P<title>[^/]+)", folder=True, host_code=True),)

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        if "lock" in listing:
            raise EntryRefused("its lock is still there: the build was cut off", because="incomplete")
        if not {f"{found.title}.so", found.title} & set(listing):
            raise EntryRefused(f"no {found.title}.so, which is what will be asked for", because="incomplete")
        return super().finish(cache, place, listing, found)


class TvmFfi(NinjaBuilt):
    """TVM FFI 0.1.12's `cpp.load_inline` and `cpp.load`: one directory per module, built in place by ninja.

    <cache>/<Python and TVM FFI>/<name>_<16 hex>/build.ninja .ninja_log .ninja_deps main.cpp *.o <name>.so lock

    Facts: the hash in the name covers the sources' text (inline) or paths (files) and the flags, not the headers;
    `lock` is an empty file that stays, held by flock(2), so that a killed build harms nobody.
    """

    row = BY_NAME["tvm-ffi"]
    shapes = (Shape(r"(?:\w+-\w+-tvm_ffi-[^/]+|unknown)/(?P<title>[^/]+)_[0-9a-f]{16}", folder=True, host_code=True),)


class FlashInfer(NinjaBuilt):
    """FlashInfer 0.6.18 and 0.7.2: modules built by ninja, from sources generated beside them; cubins that it loads.

    <cache>/.cache/flashinfer/<version>/<archs>/cached_ops/<module>/build.ninja .ninja_log .ninja_deps *.o <module>.so
                                                cached_ops/<module>_<arch>_cute_dsl/meta.json *.o
                                                cached_ops/tmp/*.lock
                                                generated/<module>/*.cu …
                                                flashinfer_jit.log, autotune/
    <cache>/.cache/flashinfer/cubins/…          each checked by its SHA-256 whenever it is read

    Facts: all paths in `build.ninja` are absolute; sources are generated again by each process and rewritten only if
    they differ, so they must be there before it starts, and be older than the objects. Tried by hand with 0.7.2.post1
    and nvcc 13.0 (no GPU needed to build; a gigabyte to install): quantization 56 s cold, 0.03 s warm in another room,
    ninja with no work to do. The tests have its tree, written by hand.
    """

    row = BY_NAME["flashinfer"]
    shapes = (
        Shape(rf"{_WORKSPACE}/cached_ops/(?!tmp$)(?P<title>[^/]+(?<!_cute_dsl))", folder=True, host_code=True),
        Shape(r"\.cache/flashinfer/cubins/.+"),
    )
    sources = rf"{_WORKSPACE}/generated/.+"
    ignored = (
        rf"{_WORKSPACE}/(?:cached_ops/[^/]+|(?!cached_ops$)[^/]+)",
        r"\.cache/flashinfer/cubins/.+\.(?:lock|tmp)",
    )


TOOLS = (TorchExtensions(), TvmFfi(), FlashInfer())


class _Places:
    """The paths of one build: which are in the cache, and the state of those that are not."""

    def __init__(self, cache: CacheDir, root: str, folder: str) -> None:
        self._cache, self._root, self._folder = cache, root, folder
        self._real = os.path.realpath(cache.path)
        #: Everything in the cache that was asked for.
        self.found: set[str] = set()
        self.outside: dict[str, build_inputs.FileState] = {}

    def inside(self, path: str) -> str:
        """Relative to the cache directory; empty for a path outside."""
        place = _inside(self._root, self._folder, path)
        if not place and f"{os.path.normpath(path)}/".startswith((f"{self._cache.path}/", f"{self._real}/")):
            raise EntryRefused(f"it names {path}, and not {self._root}", because="outside")
        return place

    def times(self, path: str) -> tuple[int, int]:
        """(when it was modified, when its contents last became what they are), as far as each can be told."""
        place = self.inside(path)
        if not place:
            state = self.outside[path] = self.outside.get(path) or _look(path)
            return state.mtime, state.ctime
        if os.path.realpath(os.path.join(self._cache.path, place)) != os.path.join(self._real, place):
            raise EntryRefused(f"{place} is reached through a link", because="outside")
        status = self._cache.status("", place)
        if not status.st_size:
            raise EntryRefused(f"{place} is empty", because="torn")
        self.found.add(place)
        # Not its ctime: moving a file into a room is a change of that.
        return status.st_mtime_ns, status.st_mtime_ns

    def look(self, place: str) -> str:
        return hashlib.sha256(self._cache.read("", place)).hexdigest()


def _check_edge(edge: ninja.Edge, log: ninja.NinjaLog, deps: ninja.Deps, places: _Places) -> None:
    for output in edge.outputs:
        if not places.inside(output):
            raise EntryRefused(f"{output} is built outside the cache", because="outside")
        if output not in log.made or (edge.has_deps and output not in deps):
            raise EntryRefused(f"{output} was never finished", because="incomplete")
        try:
            mtime, _ = places.times(output)
            inputs = (*edge.inputs, *(deps[output][1] if edge.has_deps else ()))
            changes = {path: places.times(path) for path in inputs}
        except OSError as error:
            raise EntryRefused(str(error), because="incomplete")
        if edge.has_deps and deps[output][0] < mtime:
            raise EntryRefused(f"{output} was made again, and ninja did not write it down", because="incomplete")
        for path, (modified, became) in changes.items():
            if modified > mtime or max(modified, became) > log.made[output].mtime:
                raise EntryRefused(f"{path} changed after {output} was made from it", because="mixed")


def _origins(edges: list[ninja.Edge], places: _Places) -> tuple[Origin, ...]:
    files, programs = build_inputs.needs({edge.command for edge in edges})
    beside = {path for path in files if not places.inside(path)} - set(places.outside)
    known = [Origin("input", path, state.sha256) for path, state in places.outside.items()]
    known += [Origin("beside", path, _look(path).sha256) for path in beside]
    for program in programs:
        try:
            known.append(Origin("program", program, build_inputs.look_for(program).sha256))
        except OSError as error:
            raise EntryRefused(f"{error}: another machine could not check that it has the same", because="outside")
    if any("\n" in origin.name or "\t" in origin.name for origin in known) or len(known) > _MOST_INPUTS:
        raise EntryRefused("its sources cannot be listed", because="unknown")
    return tuple(sorted(known))


def _look(path: str) -> build_inputs.FileState:
    try:
        return build_inputs.look(path)
    except OSError as error:
        raise EntryRefused(f"{path}: {error.strerror or error}", because="incomplete")


def _read_origins(data: bytes) -> list[Origin]:
    origins = []
    for line in data.decode("utf-8", "surrogateescape").split("\n")[1:]:
        if line.startswith("# "):
            kind, _, rest = line[2:].partition("\t")
            digest, _, name = rest.partition("\t")
            if kind not in _KINDS or not name or (kind != "program" and not os.path.isabs(name)):
                raise EntryRefused("its list of sources cannot be read", because="torn")
            origins.append(Origin(kind, name, digest))
    if not origins or len(origins) > _MOST_INPUTS:
        raise EntryRefused("it does not say what it was made from", because="torn")
    return origins


def _verify(origins: list[Origin]) -> int:
    """The time of the newest source here. Raises `EntryUnfit` unless each has the very contents it had there."""
    newest = 0
    for kind, name, sha256 in origins:
        try:
            state = build_inputs.look_for(name) if kind == "program" else build_inputs.look(name)
        except OSError as error:
            raise EntryUnfit(f"made from {name}, which cannot be read here", because=error.strerror or str(error))
        if state.sha256 != sha256:
            raise EntryUnfit(f"made from another {name} than the one here")
        if kind == "input":
            newest = max(newest, state.mtime)
    return newest


def _inside(root: str, folder: str, path: str) -> str:
    if not os.path.isabs(path):
        place = posixpath.normpath(f"{folder}/{path}")
        if place.startswith("../"):
            raise EntryRefused(f"{path} leads out of the cache", because="outside")
        return place
    return posixpath.normpath(path)[len(root) + 1 :] if posixpath.normpath(path).startswith(f"{root}/") else ""


def _file(cache: CacheDir, folder: str, name: str) -> bytes:
    try:
        data = cache.read(folder, name)
    except FileNotFoundError:
        raise EntryRefused(f"no {name}: nothing was built, or it was cut off", because="incomplete")
    if not data:
        raise EntryRefused(f"{name} is empty", because="torn")
    return data


def _digest(plan: bytes, log: ninja.NinjaLog, origins: tuple[Origin, ...], sources: Mapping[str, str]) -> str:
    commands = sorted((output, made.command) for output, made in log.made.items())
    everything = repr((plan, log.version, commands, [tuple(origin) for origin in origins], sorted(sources.items())))
    return hashlib.sha256(everything.encode("utf-8", "surrogateescape")).hexdigest()[:24]
