"""PyTorch 2.13's `cpp_extension.load` and `load_inline`: one directory per extension, built in place by ninja.

    <cache>/<Python and PyTorch>/<name>/build.ninja .ninja_log .ninja_deps *.o <name>.so      (main.cpp: load_inline)
                                        lock        while it builds

Facts: the directory's name is the extension's, whatever its sources; `lock` has no owner in it, so that the next
process waits for ever for one that was killed; PyTorch's own headers are no inputs for ninja (`-isystem`), so that an
upgrade in place rebuilds nothing; a changed source in the same process becomes `<name>_v1.so`, which a new process
never asks for.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.ninja_built import Listing, NinjaBuilt
from ondol.tools.table import BY_NAME


class TorchExtensions(NinjaBuilt):
    row = BY_NAME["torch-extensions"]
    folders = r"(?:\w+-\w+-torch-[^/]+|unknown)/(?P<title>[^/]+)"

    def check(self, title: str, listing: Listing) -> None:
        if "lock" in listing:
            raise EntryRefused("its lock is still there: the build was cut off", because="incomplete")
        if not {f"{title}.so", title} & set(listing):
            raise EntryRefused(f"no {title}.so, which is what will be asked for", because="incomplete")


TOOL = TorchExtensions()
