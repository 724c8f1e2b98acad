"""Tools that build with ninja in their caches: what is where, and what each of them forgets."""

import hashlib
import os
import re

from ondol.errors import EntryRefused
from ondol.foreign_text import is_plain_name
from ondol.host.identity import Host
from ondol.tools.api import ANYWHERE, Found, Refused
from ondol.tools.ninja_built import Listing, NinjaBuilt
from ondol.tools.table import BY_NAME

_WORKSPACE = r"\.cache/flashinfer/(?!cubins/)[^/]+/[^/]+"
_CUBINS = ".cache/flashinfer/cubins/"
_ANY_CUBIN = rf"{re.escape(_CUBINS)}.+"


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
    folders = r"(?:\w+-\w+-torch-[^/]+|unknown)/(?P<title>[^/]+)"

    def check(self, title: str, listing: Listing) -> None:
        if "lock" in listing:
            raise EntryRefused("its lock is still there: the build was cut off", because="incomplete")
        if not {f"{title}.so", title} & set(listing):
            raise EntryRefused(f"no {title}.so, which is what will be asked for", because="incomplete")


class TvmFfi(NinjaBuilt):
    """TVM FFI 0.1.12's `cpp.load_inline` and `cpp.load`: one directory per module, built in place by ninja.

    <cache>/<Python and TVM FFI>/<name>_<16 hex>/build.ninja .ninja_log .ninja_deps main.cpp *.o <name>.so lock

    Facts: the hash in the name covers the sources' text (inline) or paths (files) and the flags, not the headers;
    `lock` is an empty file that stays, held by flock(2), so that a killed build harms nobody.
    """

    row = BY_NAME["tvm-ffi"]
    folders = r"(?:\w+-\w+-tvm_ffi-[^/]+|unknown)/(?P<title>[^/]+)_[0-9a-f]{16}"


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
    folders = rf"{_WORKSPACE}/cached_ops/(?!tmp$)(?P<title>[^/]+(?<!_cute_dsl))"
    sources = rf"{_WORKSPACE}/generated/.+|{_ANY_CUBIN}"
    ignored = (
        rf"{_WORKSPACE}/(?:cached_ops/(?:tmp/.*|[^/]+_cute_dsl/.*|[^/]+)|generated/.*|autotune/.*|[^/]+)",
        rf"{_ANY_CUBIN}\.(?:lock|tmp)",
    )

    def other(self, path: str, status: os.stat_result) -> Found | Refused:
        if not path.startswith(_CUBINS):
            return super().other(path, status)
        if not status.st_size:
            return Refused("torn", path, "empty")
        name = path.removeprefix(_CUBINS).replace("/", "--")
        key = name if is_plain_name(name) else hashlib.sha256(path.encode()).hexdigest()
        return Found(key, ANYWHERE, "", (path,), os.path.basename(path), 0.0)

    def accepts(self, fingerprint: str, host: Host) -> bool:
        return fingerprint == ANYWHERE or super().accepts(fingerprint, host)


TOOLS = (TorchExtensions(), TvmFfi(), FlashInfer())
