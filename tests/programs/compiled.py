"""A function compiled by torch.compile for a device, and with `more` another one; prints torch's own counters, what was
built in C++ and whether the numbers are right.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

gc.disable()  # a third of what importing this much of torch takes

import torch  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor import cpu_vec_isa  # noqa: E402
from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # noqa: E402

# Each kind of processor that torch looks for is a probe in C++: one of them is enough.
cpu_vec_isa.supported_vec_isa_list[:] = [cpu_vec_isa.VecAVX2()]


def built() -> set[tuple[str, int]]:
    """Libraries and headers where Inductor looks for them, each with its inode: one that is made again is another."""
    cache, headers = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]), Path(default_cache_dir()) / "precompiled_headers"
    found = [*cache.glob("??/*.so"), *headers.glob("*.gch")]
    return {(path.name, path.stat().st_ino) for path in found}


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x * y).softmax(-1).sum(0)


def another(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.sin() * y.cos()).exp().mean(0)


def main(device: str = "cpu", more: str = "") -> None:
    before = built()
    torch.manual_seed(0)
    x, y = torch.rand(32, 61), torch.rand(32, 61)
    right = []
    for one in (function, another)[: 2 if more else 1]:
        result = torch.compile(one)(x.to(device), y.to(device)).cpu()
        right.append(torch.allclose(result, one(x, y), atol=1e-5))
    said = {
        "hits": counters["inductor"]["fxgraph_cache_hit"],
        "compiled": counters["inductor"]["fxgraph_cache_miss"],
        "traced": counters["aot_autograd"]["autograd_cache_miss"],
        "tuned": counters["inductor"]["benchmarking.InductorBenchmarker.benchmark_gpu"],
        "built": len(built() - before),
        "right": all(right),
        "torch": torch.__version__,
    }
    print(json.dumps(said))


main(*sys.argv[1:])
