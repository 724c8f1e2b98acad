"""Says at the end what Triton and Inductor themselves counted: what they compiled, and what their caches had."""

from __future__ import annotations

import json

from torch._dynamo.utils import counters
from triton import knobs

KERNELS = {"compiled": 0, "hits": 0}


def pytest_configure() -> None:
    def listen(*, cache_hit: bool, **_others: object) -> None:
        KERNELS["hits" if cache_hit else "compiled"] += 1

    knobs.compilation.listener = listen


def pytest_terminal_summary(terminalreporter) -> None:
    inductor = counters["inductor"]
    graphs = {"compiled": inductor["fxgraph_cache_miss"], "hits": inductor["fxgraph_cache_hit"]}
    terminalreporter.write_line("counted: " + json.dumps({"triton": KERNELS, "inductor": graphs}))
