"""An autotuned Triton kernel on the fake driver: what is measured is made up, all else is Triton's own.

FASTEST is the number of the configuration that measures best; with KEPT the program asks Triton itself to keep what was
measured, as flash-linear-attention does. Prints how many were measured, how many results Triton
took from its cache (its own listener), and what it chose.
"""

import json
import os

import triton
import triton.language as tl
from triton.runtime import autotuner, cache

# Triton makes its own key of all its files, which takes each process half as long as everything else.
autotuner.triton_key = cache.triton_key = lambda: triton.__version__
FASTEST = int(os.environ.get("FASTEST", "0"))
counts = {"made": 0, "reused": 0}


class Pointer:
    """The least that Triton asks of a tensor."""

    dtype = "float32"

    def data_ptr(self) -> int:
        return 4096


def bench(call, quantiles):
    call()
    counts["made"] += 1
    return [1.0 if counts["made"] - 1 == FASTEST else 2.0] * len(quantiles)


def listen(*, cache_hit, **_others):
    counts["reused"] += cache_hit


CONFIGS = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]


@triton.autotune(configs=CONFIGS, key=["n"], do_bench=bench, cache_results="KEPT" in os.environ)
@triton.jit
def fill(out, value, n, BLOCK: tl.constexpr):  # noqa: N803 - Triton's custom
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, value, mask=places < n)


triton.knobs.autotuning.listener = listen
fill[(4,)](Pointer(), 1.5, 1000)
print(json.dumps({**counts, "answer": fill.best_config.kwargs["BLOCK"]}))
