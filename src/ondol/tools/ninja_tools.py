"""Tools that build with ninja in their caches: what is where, and what each of them forgets."""

from ondol.errors import EntryRefused
from ondol.tools.api import CacheDir, Found
from ondol.tools.ninja_built import NinjaBuilt
from ondol.tools.shapes import Listing, Shape
from ondol.tools.table import BY_NAME

_WORKSPACE = r"\.cache/flashinfer/(?!cubins/)[^/]+/[^/]+"


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
