"""Builds as PyTorch's `cpp_extension.load` does, with real ninja and a real compiler and without PyTorch.

    extension.py NAME SOURCE [FLAG …]

Says as JSON what ninja did (`built`: the outputs it made) and what the library answers. The plan is written as PyTorch
2.13 writes it, `-isystem` for PyTorch's own headers included: those of the `torch` package that this Python finds.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import subprocess
import sys

PLAN = """ninja_required_version = 1.3
cxx = {cxx}

cflags = -DTORCH_EXTENSION_NAME={name} {isystem} -fPIC {flags}
post_cflags =
ldflags = -shared

rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
  depfile = $out.d
  deps = gcc

rule link
  command = $cxx $in $ldflags -o $out

build {name}.o: compile {source}

build {name}.so: link {name}.o

default {name}.so
"""


def headers() -> str:
    spec = importlib.util.find_spec("torch")
    folders = (spec.submodule_search_locations or []) if spec else []
    return " ".join(f"-isystem {folder}/include" for folder in folders)


def main(name: str, source: str, *flags: str) -> None:
    folder = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], name)
    os.makedirs(folder, exist_ok=True)
    if source == "-":  # as `load_inline` does: written here, and only if it differs
        source = os.path.join(folder, "main.cpp")
        text = sys.stdin.read()
        if not os.path.exists(source) or open(source).read() != text:
            with open(source, "w") as file:
                file.write(text)
    cxx = os.environ.get("CXX", "c++")
    plan = PLAN.format(cxx=cxx, name=name, isystem=headers(), flags=" ".join(flags), source=os.path.abspath(source))
    lock = os.path.join(folder, "lock")
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    try:
        with open(os.path.join(folder, "build.ninja"), "w") as file:
            file.write(plan)
        done = subprocess.run(["ninja", "-v"], cwd=folder, capture_output=True, text=True, check=False)
    finally:
        os.remove(lock)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    built = re.findall(r"-o (\S+)", done.stdout)
    answer = ctypes.CDLL(os.path.join(folder, f"{name}.so")).answer()
    print(json.dumps({"built": built, "answer": answer, "folder": folder, "said": done.stdout}))


if __name__ == "__main__":
    main(*sys.argv[1:])
