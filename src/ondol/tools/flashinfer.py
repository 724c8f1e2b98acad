"""FlashInfer 0.6.18 and 0.7.2: modules built by ninja, from sources generated beside them; cubins that it downloads.

    <cache>/.cache/flashinfer/<version>/<archs>/cached_ops/<module>/build.ninja .ninja_log .ninja_deps *.o <module>.so
                                                cached_ops/<module>_<arch>_cute_dsl/meta.json *.o
                                                cached_ops/tmp/*.lock
                                                generated/<module>/*.cu …
                                                flashinfer_jit.log, autotune/
    <cache>/.cache/flashinfer/cubins/…          each checked by its SHA-256 whenever it is read

Facts: all paths in `build.ninja` are absolute; sources are generated again by each process and rewritten only if they
differ, so they must be there before it starts, and be older than the objects. Tried by hand with 0.7.2.post1 and nvcc
13.0 (no GPU needed to build; a gigabyte to install): quantization 56 s cold, 0.03 s warm in another room, ninja with no
work to do. The tests have its tree, written by hand.
"""

from __future__ import annotations

import hashlib
import os
import re

from ondol import words
from ondol.host.identity import Host
from ondol.tools.api import ANYWHERE, Found, Refused
from ondol.tools.ninja_built import NinjaBuilt
from ondol.tools.table import BY_NAME

_WORKSPACE = r"\.cache/flashinfer/(?!cubins/)[^/]+/[^/]+"
_CUBINS = ".cache/flashinfer/cubins/"
_ANY_CUBIN = rf"{re.escape(_CUBINS)}.+"


class FlashInfer(NinjaBuilt):
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
        key = name if words.is_plain_name(name) else hashlib.sha256(path.encode()).hexdigest()
        return Found(key, ANYWHERE, "", (path,), os.path.basename(path), 0.0)

    def accepts(self, fingerprint: str, host: Host) -> bool:
        return fingerprint == ANYWHERE or super().accepts(fingerprint, host)


TOOL = FlashInfer()
