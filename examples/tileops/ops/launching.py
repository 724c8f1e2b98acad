"""Runs a Triton kernel where there is a GPU. Where there is none: compiles it for one all the same, through Triton's
own compiler and cache, and gets the numbers from Triton's interpreter.
"""

from __future__ import annotations

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpretedFunction

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TARGET = GPUTarget("cuda", 90, 32)
_KINDS = {torch.float32: "*fp32", torch.int32: "*i32"}


def launch(kernel, grid: tuple[int, ...], *arguments, **constants: int) -> None:
    if DEVICE == "cuda":
        kernel[grid](*arguments, **constants)
        return
    kinds = [_KINDS[one.dtype] if isinstance(one, torch.Tensor) else "i32" for one in arguments]
    signature = dict(zip(kernel.arg_names, kinds, strict=False)) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert triton.compile(source, target=TARGET).asm["cubin"].startswith(b"\x7fELF")
    InterpretedFunction(kernel.fn)[grid](*arguments, **constants)
