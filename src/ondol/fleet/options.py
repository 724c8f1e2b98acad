"""Names that the processes of a run agree on."""

from __future__ import annotations

from ondol.errors import UsageError
from ondol.fleet.verdict import Cause

#: How a pytest that we start is told what it is for: by `ondol test`, and by an agent that cannot fork its workers.
FRONT_ENV, WORKER_ENV = "ONDOL_FRONT", "ONDOL_WORKER_START"
MARKER = (
    "ondol(devices=1, group='', timeout=None, memory='', isolate=False, runtime=''): what an item needs of its worker"
)


def parse_causes(text: str) -> frozenset[Cause]:
    known = {c.value: c for c in Cause if c not in {Cause.NONE, Cause.INTERRUPTED}}
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--retry-on: there is no cause {unknown[0]!r}", hint=", ".join(known))
    return frozenset(known[name] for name in names)
