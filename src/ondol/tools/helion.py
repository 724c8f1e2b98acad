"""Helion 1.5: one JSON file per kernel and shape, `<sha256>.best_config`: the configuration that its search found.

Facts: written aside and renamed; a bad file is searched again. The usual key (`LocalAutotuneCache`) knows device and
CUDA version, not the versions of Helion, Triton and PyTorch; only results under the strict key, which knows them all,
travel. Driver and device models are our fingerprint's part.
"""

from __future__ import annotations

from ondol.errors import EntryRefused
from ondol.tools.shapes import Shape, Shaped, parsed
from ondol.tools.table import BY_NAME


class Helion(Shaped):
    row = BY_NAME["helion"]
    shapes = (Shape(r"[0-9a-f]{64}\.best_config", tuned=True),)
    #: Kernels, where nobody manages triton and cute-dsl, and generated sources.
    ignored = (r"tmp\..*", r"(?:triton|cute|backward)(?:/.*)?")

    def check(self, name: str, data: bytes) -> None:
        fields = parsed(name, data)
        key = fields.get("key") if isinstance(fields, dict) else None
        if not isinstance(key, dict) or not isinstance(fields.get("config"), str):
            raise EntryRefused(f"{name} holds no configuration", because="torn")
        if key.get("type") != "StrictAutotuneCacheKey":
            raise EntryRefused(f"{name} was found under a key that knows no library versions", because="loose")


TOOL = Helion()
