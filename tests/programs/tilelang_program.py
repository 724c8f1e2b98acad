"""Three TileLang kernels for the CPU (`target="c"`, gcc alone), compiled or loaded; TileLang's own compile step is counted.

With `tune` as argument one kernel is autotuned instead. There is nothing to measure without a GPU, so the measurements are
made up; what TileLang does with them is its own.
"""

import gc
import json
import sys

gc.disable()  # a quarter of what importing all this takes

import tilelang  # noqa: E402
import tilelang.language as T  # noqa: E402, N812 - TileLang's custom
import torch  # noqa: E402
from tilelang.jit.kernel import JITKernel  # noqa: E402
from tilelang.profiler import Profiler  # noqa: E402

counts = {"made": 0, "reused": 0}
compile_kernel, load_kernel = JITKernel._compile_and_create_adapter, JITKernel.from_database.__func__


def compile_and_count(self, *arguments, **named):
    counts["made"] += 1
    return compile_kernel(self, *arguments, **named)


def load_and_count(cls, *arguments, **named):
    counts["reused"] += 1
    return load_kernel(cls, *arguments, **named)


JITKernel._compile_and_create_adapter = compile_and_count
JITKernel.from_database = classmethod(load_and_count)


def add(n: int, block: int = 64):
    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32"), z: T.Tensor((n,), "float32")):  # type: ignore[valid-type]
        with T.Kernel(T.ceildiv(n, block)) as i:
            for j in T.serial(block):
                z[i * block + j] = x[i * block + j] + y[i * block + j]

    return main


x, y = torch.arange(1024.0), torch.ones(1024)
answer = []
tune = sys.argv[1:] == ["tune"]
for block in () if tune else (32, 64, 128):
    kernel = tilelang.compile(add(1024, block), out_idx=[2], target="c")
    answer.append(float(kernel(x, y).sum()))
measured: list[int] = []
if tune:

    def measure(_self, *_, **__):
        measured.append(1)
        return float(len(measured))

    Profiler.do_bench = measure
    tuned = tilelang.autotune(configs=[{"block": 64}, {"block": 128}])(tilelang.jit(out_idx=[2], target="c")(add))
    kernel = tuned(1024)
    answer.append(float(kernel(x, y).sum()))
    answer.append(kernel.config["block"])
print(json.dumps({**counts, "measured": len(measured), "answer": answer}))
