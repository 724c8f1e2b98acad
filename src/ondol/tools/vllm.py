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
import os
import re

from ondol.errors import EntryRefused
from ondol.host import fixed_place
from ondol.tools.api import CacheDir, Found
from ondol.tools.shapes import Listing, Shape, Shaped, parsed
from ondol.tools.table import BY_NAME

_COMPILED = r"torch_compile_cache/[0-9a-f]{10}"
_AHEAD = r"(?:torch_compile_cache/)?torch_aot_compile/(?P<title>[0-9a-f]{10})[0-9a-f]{54}"
_INFOS = "modelinfos/"
#: In each `rank_…/<prefix>`; the last one names the artifacts.
_BOOKS = ("cache_key_factors.json", "computation_graph.py", "vllm_compile_cache.py")
_PICKLE_END = b"."


class Vllm(Shaped):
    row = BY_NAME["vllm"]
    versioned = True
    shapes = (
        Shape(_COMPILED, folder=True, host_code=True),
        Shape(_AHEAD, folder=True, host_code=True),
        Shape(_INFOS + r"(?P<title>[\w.-]+)\.json"),
    )
    #: What is passing, and whatever else vLLM keeps.
    ignored = (
        r"(?:.*/)?(?:[^/]+\.tmp|[^/]+\.lock|tmp\.[^/]*)",
        r"(?!(?:torch_compile_cache|torch_aot_compile|modelinfos)(?:/|$)).+",
    )

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found | None:
        if place.startswith(_INFOS):
            return found._replace(key=f"{found.key}@{_info(cache.read_metadata('', place))}")
        return _compiled(cache, found) if re.fullmatch(_COMPILED, place) else _ahead(cache, place, listing, found)

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        if os.fsencode(cache.path) in data:
            raise EntryRefused(
                f"{name} names {cache.path}, and not {fixed_place.path(self.row.name)}", because="outside"
            )
        if not data:
            raise EntryRefused(f"{name} is empty", because="torn")
        if name.endswith("/model") and not data.endswith(_PICKLE_END):
            raise EntryRefused(f"{name} is cut off", because="torn")
        if name.startswith(_INFOS) and _info(data) != found.key.rpartition("@")[2]:
            raise EntryRefused(f"{name} changed while it was read", because="mixed")
        return data

    def attach(self, name: str, data: bytes | memoryview, names: tuple[str, ...], folder: str) -> bytes | memoryview:
        # Also of a directory that is an entry as a whole.
        return super().attach(name, data, () if self._is_ignored(name) else names, folder)

    def witness(self, names: tuple[str, ...]) -> str:
        wanted = ("/vllm_compile_cache.py", "/model")
        return next((name for name in names if name.endswith(wanted)), names[0])


TOOLS = (Vllm(),)


def _compiled(cache: CacheDir, found: Found) -> Found | None:
    parts = {name.rpartition("/")[0] for name in found.names if name.rpartition("/")[2] in _BOOKS}
    if not any(f"{part}/{_BOOKS[-1]}" in found.names for part in parts):
        return None  # compiled ahead of time, or not at all: nothing here that anybody would load
    for part in parts:
        for book in _BOOKS:
            if f"{part}/{book}" not in found.names:
                raise EntryRefused(f"{part} has no {book}", because="incomplete")
        for path in _artifacts(cache.read_metadata("", f"{part}/{_BOOKS[-1]}")):
            _check_artifact(path, "/".join(part.split("/")[:2]), found.names)
    return found


def _artifacts(book: bytes) -> list[str]:
    """The absolute paths in the book, which is one Python literal."""
    try:
        handles = [value["graph_handle"] for value in ast.literal_eval(book.decode()).values()]
        return [str(handle[1]) for handle in handles]
    except (ValueError, SyntaxError, KeyError, TypeError, IndexError, AttributeError, MemoryError, RecursionError):
        raise EntryRefused(f"{_BOOKS[-1]} cannot be read", because="torn")


def _check_artifact(path: str, unit: str, names: tuple[str, ...]) -> None:
    inside = f"{fixed_place.path(Vllm.row.name)}/"
    if not path.startswith(f"{inside}{unit}/"):
        raise EntryRefused(f"{path!r:.200} is outside {inside}{unit}", because="outside")
    name = path[len(inside) :]
    if not any(known == name or known.startswith(f"{name}/") for known in names):
        raise EntryRefused(f"{name} is missing", because="incomplete")


def _ahead(cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
    models = sorted(name for name in listing if re.fullmatch(r"rank_\d+_\d+/model", name))
    ranks = {name.split("/")[0] for name in listing if name.startswith("rank_")}
    if not models or len(ranks) != len(models):
        raise EntryRefused("a rank has no model", because="incomplete")
    version = hashlib.sha256()
    for name in models:
        version.update(hashlib.sha256(cache.read(place, name)).digest())
    names = tuple(f"{place}/{name}" for name in models)
    return found._replace(key=f"{found.key}@{version.hexdigest()[:24]}", names=names)


def _info(data: bytes) -> str:
    """The hash of the source that a model's information was taken from."""
    fields = parsed("what vLLM knows of a model", data)
    version = fields.get("hash") if isinstance(fields, dict) and fields.get("modelinfo") else None
    if not isinstance(version, str) or not re.fullmatch(r"[0-9a-f]{16,128}", version):
        raise EntryRefused("not what vLLM writes", because="torn")
    return version
