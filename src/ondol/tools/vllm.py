"""vLLM, layout of August 2026 (commit a014e35f): one directory per configuration, for all ranks together.

    <cache>/torch_compile_cache/<10 hex>/rank_<r>_<dp>/<prefix>/cache_key_factors.json computation_graph.py
                                                                vllm_compile_cache.py artifact_compile_range_…
    <cache>/torch_compile_cache/torch_aot_compile/<64 hex>/rank_<r>_<dp>/model     (before: without the first folder)
                                                           inductor_cache/…        what was unpacked from `model`
    <cache>/modelinfos/<module>-<class>.json               what a model class can do, with a hash of its source
    <cache>/dummy_cache deep_gemm flashinfer_autotune_cache startup_plan gpu_p2p_access_cache_for_….json …

Facts: `vllm_compile_cache.py` names its artifacts by absolute path and is written in place, last; the short hash covers
configuration, environment, PyTorch and the traced sources, the long one all but the sources, which are compared when
`model` is loaded: after a change vLLM compiles again into the same directory. A job that compiles ahead of time leaves
a directory of the first kind with no artifacts in it.
"""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ondol.errors import EntryRefused
from ondol.host import fixed_place
from ondol.host.identity import Host
from ondol.tools.api import ANYWHERE, CacheDir, Found, Refused, Tool, refused, version_of
from ondol.tools.shapes import host_code
from ondol.tools.table import BY_NAME

_COMPILED = r"torch_compile_cache/[0-9a-f]{10}"
_AHEAD = r"(?:torch_compile_cache/)?torch_aot_compile/[0-9a-f]{64}"
_INFO = r"modelinfos/(?P<title>[\w.-]+)\.json"
#: In each `rank_…/<prefix>`; the last one names the artifacts.
_BOOKS = ("cache_key_factors.json", "computation_graph.py", "vllm_compile_cache.py")
_PASSING = re.compile(r"(?:.*/)?(?:\.[^/]*\.tmp|[^/]+\.tmp|[^/]+\.lock|tmp\.[^/]*)")
_PICKLE_END = b"."


class Vllm(Tool):
    row = BY_NAME["vllm"]
    versioned = True

    # -- from a cache directory to entries -------------------------------------------------------------------------

    def scan(self, cache: CacheDir, host: Host) -> Iterator[Found | Refused]:
        unit = ""
        for folder, listing in cache.tree():
            if unit and folder.startswith(unit + "/"):
                continue
            if isinstance(listing, OSError):
                yield refused(folder or ".", listing)
            elif re.fullmatch(f"{_COMPILED}|{_AHEAD}", folder):
                unit = folder
                yield from self._unit(cache, host, folder)
            elif folder == "modelinfos":
                yield from self._infos(cache, listing)

    def _unit(self, cache: CacheDir, host: Host, folder: str) -> Iterator[Found | Refused]:
        names: list[str] = []
        for place, listing in cache.tree(folder):
            if isinstance(listing, OSError):
                yield refused(place, listing)
                return
            names += [f"{place}/{name}"[len(folder) + 1 :] for name in listing]
        names = [name for name in names if not _PASSING.fullmatch(name)]
        try:
            found = _compiled(cache, folder, names) if re.fullmatch(_COMPILED, folder) else _ahead(cache, folder, names)
        except (EntryRefused, OSError) as error:
            yield refused(folder, error)
            return
        if found:
            yield found._replace(fingerprint=host_code(host))

    def _infos(self, cache: CacheDir, listing: Mapping[str, os.stat_result]) -> Iterator[Found | Refused]:
        for name, status in listing.items():
            match = re.fullmatch(_INFO, f"modelinfos/{name}")
            if not match:
                continue  # a temporary file
            if not status.st_size:
                yield Refused("torn", f"modelinfos/{name}", "empty")
                continue
            try:
                version = _info(cache.read_metadata("modelinfos", name))
            except (EntryRefused, OSError) as error:
                yield Refused("torn", f"modelinfos/{name}", str(error))
                continue
            yield Found(f"modelinfos--{name}@{version}", ANYWHERE, "modelinfos", (name,), match["title"], 0.0)

    # -- path-free and back ----------------------------------------------------------------------------------------

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        if not data:
            raise EntryRefused(f"{name} is empty", because="torn")
        if os.fsencode(cache.path) in data:
            raise EntryRefused(
                f"{name} names {cache.path}, and not {fixed_place.path(self.row.name)}", because="outside"
            )
        if name.endswith("/model") and not data.endswith(_PICKLE_END):
            raise EntryRefused(f"{name} is cut off", because="torn")
        if found.folder == "modelinfos" and _info(data) != found.key.rpartition("@")[2]:
            raise EntryRefused(f"{name} changed while it was read", because="mixed")
        return data

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        del names, folder
        if _PASSING.fullmatch(name):
            raise EntryRefused(f"{name!r:.80} is not a file that {self.row.name} keeps", because="outside")
        return data

    def folder(self, key: str) -> str:
        place = "modelinfos" if key.startswith("modelinfos--") else version_of(key).replace("--", "/")
        if not re.fullmatch(f"{_COMPILED}|{_AHEAD}|modelinfos", place):
            raise EntryRefused(f"{key!r:.80} is not a place that {self.row.name} has", because="outside")
        return place

    def witness(self, names: tuple[str, ...]) -> str:
        wanted = ("/vllm_compile_cache.py", "/model")
        return next((name for name in names if name.endswith(wanted)), names[0])

    def accepts(self, fingerprint: str, host: Host) -> bool:
        return fingerprint == ANYWHERE or fingerprint == host_code(host)


TOOLS = (Vllm(),)


def _compiled(cache: CacheDir, folder: str, names: list[str]) -> Found | None:
    parts = {name.rpartition("/")[0] for name in names if name.rpartition("/")[2] in _BOOKS}
    if not any(f"{part}/{_BOOKS[-1]}" in names for part in parts):
        return None  # compiled ahead of time, or not at all: nothing here that anybody would load
    for part in parts:
        for book in _BOOKS:
            if f"{part}/{book}" not in names:
                raise EntryRefused(f"{part} has no {book}", because="incomplete")
        for path in _artifacts(cache.read_metadata(folder, f"{part}/{_BOOKS[-1]}")):
            _check_artifact(path, folder, names)
    return Found(folder.replace("/", "--"), "", folder, tuple(sorted(names)), folder[-10:], 0.0)


def _artifacts(book: bytes) -> list[str]:
    """The absolute paths in the book, which is one Python literal."""
    try:
        handles = [value["graph_handle"] for value in ast.literal_eval(book.decode()).values()]
        return [str(handle[1]) for handle in handles]
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, AttributeError, MemoryError, RecursionError):
        raise EntryRefused(f"{_BOOKS[-1]} cannot be read", because="torn")


def _check_artifact(path: str, folder: str, names: list[str]) -> None:
    inside = f"{fixed_place.path(Vllm.row.name)}/{folder}/"
    if not path.startswith(inside):
        raise EntryRefused(f"{path!r:.200} is outside {inside}", because="outside")
    name = path[len(inside) :]
    if not any(known == name or known.startswith(f"{name}/") for known in names):
        raise EntryRefused(f"{name} is missing", because="incomplete")


def _ahead(cache: CacheDir, folder: str, names: list[str]) -> Found:
    models = sorted(name for name in names if re.fullmatch(r"rank_\d+_\d+/model", name))
    ranks = {name.split("/")[0] for name in names if name.startswith("rank_")}
    if not models or len(ranks) != len(models):
        raise EntryRefused("a rank has no model", because="incomplete")
    version = hashlib.sha256()
    for name in models:
        version.update(hashlib.sha256(cache.read(folder, name)).digest())
    key = f"{folder.replace('/', '--')}@{version.hexdigest()[:24]}"
    return Found(key, "", folder, tuple(models), folder.rpartition("/")[2][:10], 0.0)


def _info(data: bytes) -> str:
    """The hash of the source that a model's information was taken from."""
    try:
        fields: Any = json.loads(data)
        version = fields["hash"]
        if not fields["modelinfo"] or not re.fullmatch(r"[0-9a-f]{16,128}", version):
            raise ValueError("no hash")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EntryRefused("not what vLLM writes", because="torn")
    return str(version)
