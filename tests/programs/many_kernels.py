"""Compiles many small kernels with a real Triton, without a GPU; says each as it begins, and whether it was a hit."""

from __future__ import annotations

import sys
from pathlib import Path

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

sys.path.insert(0, sys.argv[1])
from kernels import scale_and_shift  # type: ignore[import-not-found]  # a test writes it

POINTERS = ("*fp32", "*fp16", "*fp64")
BLOCKS = (128, 256, 512, 1024)


def main() -> None:
    def listen(*, cache_hit: bool, **_others: object) -> None:
        print("hit" if cache_hit else "compiled", flush=True)

    knobs.compilation.listener = listen
    for pointer in POINTERS:
        for block in BLOCKS:
            print("begin", flush=True)
            types = {"x": pointer, "out": pointer, "count": "i32", "factor": "fp32", "offset": "fp32"}
            source = ASTSource(
                fn=scale_and_shift, signature={**types, "BLOCK": "constexpr"}, constexprs={"BLOCK": block}
            )
            assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"].startswith(b"\x7fELF")
    print("end", flush=True)
    if Path(sys.argv[2]).exists():  # somebody wants us to stay until we are killed
        sys.stdin.read()


if __name__ == "__main__":
    main()
