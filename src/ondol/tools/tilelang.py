"""TileLang 0.1.15: a directory per kernel, with a manifest of digests; per autotuning result; per device binary.

    <version>/<platform>/kernels/<sha256>/{manifest.json,params.json,device_kernel.cu,host_kernel.cu,executable.so …}
    <version>/<platform>/autotuner/<sha256>/{best_config.json,function.pkl,latency.json,params.json,executable.so …}
    <version>/cuda-binaries/<sha256>/{metadata.json,kernel.cubin}

Facts: each is staged in `.staging/` and renamed whole. A kernel that does not match its manifest is removed and made
again, also in a shared cache; an autotuning result has no manifest, and TileLang unpickles what it finds: a torn one
ends the user's program. Some backends add files to a kernel's directory later; what is not in the manifest stays.
"""

import hashlib
from typing import Any

from ondol.errors import EntryRefused
from ondol.tools.api import CacheDir, Found
from ondol.tools.shapes import Listing, Shape, Shaped, parsed, whole_elf, whole_json
from ondol.tools.table import BY_NAME

_MANIFEST, _METADATA = "manifest.json", "metadata.json"
_KEY = "[0-9a-f]{64}"


class TileLang(Shaped):
    row = BY_NAME["tilelang"]
    shapes = (
        Shape(rf"[^/]+/[^/]+/kernels/{_KEY}", folder=True, needs=(r"manifest\.json",), library=True),
        Shape(
            rf"[^/]+/[^/]+/autotuner/{_KEY}",
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
        Shape(rf"[^/]+/[a-z]+-binaries/{_KEY}", folder=True, needs=(r"metadata\.json", r"kernel\..+")),
    )
    ignored = (r"(?:.+/)?\.staging(?:/.*)?", r".+/\.[^/]+\.tmp[^/]*")
    wholes = {
        ".json": whole_json,
        ".so": whole_elf,
        ".cubin": whole_elf,
        ".pkl": lambda data: data.startswith(b"\x80") and data.endswith(b"."),
    }

    def finish(self, cache: CacheDir, place: str, listing: Listing, found: Found) -> Found:
        if _MANIFEST not in listing:
            return found
        listed = _listed(cache, place)
        missing = sorted(set(listed) - set(listing))
        if missing:
            raise EntryRefused(f"no {missing[0]}", because="incomplete")
        return found._replace(names=tuple(sorted(f"{place}/{name}" for name in (*listed, _MANIFEST))))

    def detach(self, found: Found, name: str, data: bytes, cache: CacheDir) -> bytes:
        folder, _, base = name.rpartition("/")
        if f"{folder}/{_MANIFEST}" in found.names and base != _MANIFEST:
            _compare(name, data, _listed(cache, folder)[base])
        elif f"{folder}/{_METADATA}" in found.names and base != _METADATA:
            _compare(name, data, parsed(_METADATA, cache.read_metadata(folder, _METADATA)))
        return super().detach(found, name, data, cache)

    def made_by(self, contents: Any) -> str:
        return str(next(iter(contents), "")).partition("/")[0]


TOOLS = (TileLang(),)


def _listed(cache: CacheDir, folder: str) -> dict[str, Any]:
    fields = parsed(_MANIFEST, cache.read_metadata(folder, _MANIFEST))
    listed = fields.get("files") if isinstance(fields, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise EntryRefused("the manifest names no files", because="torn")
    return listed


def _compare(name: str, data: bytes, said: Any) -> None:
    if not isinstance(said, dict) or hashlib.sha256(data).hexdigest() != said.get("sha256"):
        raise EntryRefused(f"{name} is not what its manifest says", because="torn")
