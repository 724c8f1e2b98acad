"""Says at the end what Triton and Inductor themselves counted: what they compiled, and what their caches had."""

from __future__ import annotations

import atexit
import gc
import json

gc.disable()  # looking for garbage takes a third of such an import, and there is none

import launching  # noqa: E402, F401
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor import compile_fx  # noqa: E402, F401
from triton import knobs  # noqa: E402

gc.freeze()  # nor is there at the end of each test
atexit.register(gc.unfreeze)

KERNELS = {"compiled": 0, "hits": 0}


def pytest_configure() -> None:
    def listen(*, cache_hit: bool, **_others: object) -> None:
        KERNELS["hits" if cache_hit else "compiled"] += 1

    knobs.compilation.listener = listen


def pytest_terminal_summary(terminalreporter) -> None:
    inductor = counters["inductor"]
    graphs = {"compiled": inductor["fxgraph_cache_miss"], "hits": inductor["fxgraph_cache_hit"]}
    terminalreporter.write_line("counted: " + json.dumps({"triton": KERNELS, "inductor": graphs}))
