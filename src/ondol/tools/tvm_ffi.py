"""TVM FFI 0.1.12's `cpp.load_inline` and `cpp.load`: one directory per module, built in place by ninja.

    <cache>/<Python and TVM FFI>/<name>_<16 hex>/build.ninja .ninja_log .ninja_deps main.cpp *.o <name>.so lock

Facts: the hash in the name covers the sources' text (inline) or paths (files) and the flags, not the headers; `lock` is
an empty file that stays, held by flock(2), so that a killed build harms nobody.
"""

from __future__ import annotations

from ondol.tools.ninja_built import NinjaBuilt
from ondol.tools.table import BY_NAME


class TvmFfi(NinjaBuilt):
    row = BY_NAME["tvm-ffi"]
    folders = r"(?:\w+-\w+-tvm_ffi-[^/]+|unknown)/(?P<title>[^/]+)_[0-9a-f]{16}"


TOOL = TvmFfi()
