"""What a machine without a network needs: packages and public suites, packed here, unpacked there.

`python -m bench.gpu.carry FLA TILEOPS LIGER GEMS` packs into `.build/gpu`, from clones of
fla-org/flash-linear-attention, tile-ai/TileOPs, linkedin/Liger-Kernel and FlagOpen/FlagGems and from the package index
that pip is configured with, for Python 3.12 on x86-64. torch, Triton and transformers are the machine's own. Libraries
are stripped, and what they were built from is left out: 38 MiB.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.gpu.process import PLACE, ROOT, Person, environment, own, python, run
from bench.measure import ROOT as CHECKOUT

CARRY = CHECKOUT / ".build" / "gpu"
#: Name of a suite → which parts of its repository travel.
SUITES: dict[str, list[str]] = {
    "fla": [],
    "tileops": [],
    "liger": ["src", "test/transformers", "test/__init__.py", "test/conftest.py", "test/utils.py", "pyproject.toml"],
    "gems": ["src", "tests", "pytest.ini"],
}
#: tilelang 0.1.15 asks for apache-tvm-ffi <0.1.13 and z3-solver <4.15.5.
PACKAGES = ["tilelang==0.1.15", "apache-tvm-ffi==0.1.12", "z3-solver==4.15.4", "torch-c-dlpack-ext", "cloudpickle"]
PACKAGES += ["ml_dtypes", "psutil", "tqdm", "typing_extensions", "einops", "pyyaml", "zstandard", "nvidia-ml-py"]
PACKAGES += ["pytest", "pytest-timeout", "pytest-xdist", "execnet", "pluggy", "iniconfig", "packaging", "pygments"]
PACKAGES += ["hypothesis", "sortedcontainers", "attrs"]
#: Sources of what is in the libraries already. CUTLASS's and TileLang's headers stay: kernels are compiled with them.
NOT_NEEDED = [
    "tilelang/3rdparty/tvm/src",
    "tilelang/src/ascend",
    "tilelang/src/transform",
    "tvm_ffi/3rdparty/libbacktrace",
]
NOT_NEEDED += ["tilelang/3rdparty/cutlass/tools/profiler", "tilelang/3rdparty/cutlass/tools/library"]
NOT_NEEDED += ["build_backend.py", "example.py", "bin", "share"]
_FILTERS: list[dict[str, Any]] = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]


def pack(*clones: str) -> None:
    """Takes some minutes."""
    CARRY.mkdir(parents=True, exist_ok=True)
    for (name, parts), clone in zip(SUITES.items(), clones, strict=True):
        archive = subprocess.run(
            ["git", "-C", clone, "archive", "HEAD", *parts], check=True, capture_output=True
        ).stdout
        (CARRY / f"{name}.tar.xz").write_bytes(lzma.compress(archive, filters=_FILTERS))
        commit = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        (CARRY / f"{name}.commit").write_text(commit.stdout)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        _install(site)
        libraries = {path for path in site.rglob("*.so*") if not path.is_dir()}
        others = {path for path in site.rglob("*") if not path.is_dir()} - libraries
        for name, files in (("libraries", libraries), ("site", others)):
            # Machine code packs better when the addresses of its calls are made absolute first.
            filters = [{"id": lzma.FILTER_X86}] * (files is libraries) + _FILTERS
            to = CARRY / f"{name}.tar.xz"
            with lzma.open(to, "wb", filters=filters) as raw, tarfile.open(fileobj=raw, mode="w") as tar:
                for path in sorted(files):
                    tar.add(path, path.relative_to(site))


def _git(clone: str, *words: str) -> bytes:
    return subprocess.run(["git", "-C", clone, *words], check=True, capture_output=True).stdout


def _install(site: Path) -> None:
    pip = python("-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", site)
    platforms = [f"--platform=manylinux_{version}_x86_64" for version in ("2_28", "2_27", "2_24", "2_17", "2_12")]
    subprocess.run([*pip, "--python-version=3.12", *platforms, "--only-binary=:all:", *PACKAGES], check=True)
    for name in NOT_NEEDED:
        path = site / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for path in site.glob("zstandard/_cffi*.so"):
        path.unlink()
    (site / "z3/lib/libz3.so").unlink()  # the same file twice in the wheel
    (site / "z3/lib/libz3.so").symlink_to("libz3.so.4.15")
    for path in site.rglob("*.so*"):
        if not path.is_symlink():
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


def unpack() -> dict[str, Any]:
    """Once per machine; what was found on it, as root and as another user."""
    told = PLACE / "machine.json"
    if told.exists():
        return {**json.loads(told.read_text()), "unpacked": "by an earlier call"}
    began = time.monotonic()
    PLACE.mkdir(parents=True, exist_ok=True)
    PLACE.chmod(0o755)
    for name, folder in {"libraries": "site", "site": "site", **{suite: suite for suite in SUITES}}.items():
        with tarfile.open(CARRY / f"{name}.tar.xz") as tar:
            tar.extractall(PLACE / folder, filter="fully_trusted")
    shutil.copytree(CHECKOUT / "src", PLACE / "ondol", dirs_exist_ok=True)
    shutil.copytree(CHECKOUT / "bench", PLACE / "ondol" / "bench", dirs_exist_ok=True)
    _entry_point(PLACE / "entry" / "ondol-0.dist-info")
    subprocess.run(["chmod", "-R", "a+rX", PLACE], check=True)
    compiled = [str(PLACE / name) for name in ("site", "ondol", *SUITES)]
    subprocess.run(python("-m", "compileall", "-q", "-j0", *compiled), check=False, capture_output=True)
    facts: dict[str, Any] = {"unpacked_in": round(time.monotonic() - began, 1), "cores": os.cpu_count()}
    facts["commits"] = {path.stem: path.read_text().strip() for path in sorted(CARRY.glob("*.commit"))}
    facts.update(_look())
    told.write_text(json.dumps(facts, indent=1))
    return facts


def _entry_point(folder: Path) -> None:
    """As an installed Ondol has it, for our own tests; plain pytest of other suites does without."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ondol\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("[pytest11]\nondol = ondol.pytest_plugin\n")


_IMPORTS = """
import importlib, json, sys, time
told = {"python": sys.version.split()[0], "executable": sys.executable}
for name in ("torch", "triton", "transformers", "tilelang", "fla", "tileops"):
    began = time.monotonic()
    try:
        told[name] = getattr(importlib.import_module(name), "__version__", "?") + f", {time.monotonic() - began:.1f} s"
    except Exception as error:
        told[name] = repr(error)[:300]
print(json.dumps(told))
"""
_DEVICE = """
import json, os, torch
told = {"uid": os.getuid()}
try:
    told["gpu"] = torch.cuda.get_device_name(0) + f", sum {torch.ones(3, device='cuda').sum().item()}"
except Exception as error:
    told["gpu"] = repr(error)[:300]
print(json.dumps(told))
"""


def _look() -> dict[str, Any]:
    """Imports once, which also brings everything into memory, so that the first step pays no more than the last."""
    facts: dict[str, Any] = {"nvcc": shutil.which("nvcc") or "none on PATH"}
    for name, person, program in (("root", ROOT, _IMPORTS), ("other", Person(1000), _DEVICE)):
        own(person.home, person)
        log = own(PLACE / "logs", ROOT) / f"look-{name}.log"
        try:
            ended = run(python("-c", program), log, 150, environment(person), person=person)
        except OSError as error:  # a Python in somebody's home: the steps of other users will say so too
            facts[name] = {"error": str(error)}
            continue
        lines = [line for line in ended.output.splitlines() if line.startswith("{")]
        facts[name] = json.loads(lines[-1]) if lines else {"status": ended.status, "said": ended.output[-1500:]}
    return facts


if __name__ == "__main__":
    pack(*sys.argv[1:])
