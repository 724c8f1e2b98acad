"""Every tool as one row: what Ondol sets for it, whose value wins, where its cache is without us.

The environment of a job, `ondol tools` and `docs/reference/tools.md` all come from these rows. They are plain values:
the code that understands a tool's files (`ondol.tools.<module>`) is imported only by a job that has such files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ondol.host import identity
from ondol.light import Record

#: How a cache can be shared, from the survey of the field.
SHARING = {
    "A": "single files, merged freely",
    "B": "directories, merged whole",
    "C": "bound to an absolute path",
    "D": "opaque, one snapshot at a time",
    "E": "has its own protocol, guarded and never copied",
}
#: The classes that a job gets without asking. C needs a mount namespace of its own and E the tool's own protocol:
#: whoever wants them names them.
UNASKED = "ABD"


class Row(Record):
    """One tool."""

    name: str
    #: A key of `SHARING`.
    sharing: str
    #: One line for `ondol tools`.
    summary: str
    #: The versions whose layout was checked.
    versions: str
    #: Variable → value, with `{cache}` for the tool's directory in the room.
    sets: Mapping[str, str]
    #: Where the cache is without Ondol: the first of these whose variables all have a value. Beside variables:
    #: `{HOME}`, `{CACHE_HOME}`, `{TMP}` and `{USER}`, which always have one.
    places: tuple[str, ...]
    #: Variables by which a user moves the cache: their values win, unless the user asked for the tool by name.
    yields_to: tuple[str, ...] = ()
    #: Variables that change what the tool does with its cache, kept as they are and mentioned.
    keeps: tuple[str, ...] = ()
    #: Python packages whose versions keep caches apart, by the names under which they are imported: a directory each.
    apart: tuple[str, ...] = ()
    #: What its own key does not cover, so that our fingerprint must; for the reference page.
    fingerprint: str = "nothing: its own key covers all"
    #: What a user should know about how it is shared; for the reference page.
    note: str = ""
    #: A directory below TMPDIR, with `{USER}`, that it uses whatever its variables say; in a room, a link to the cache.
    below_tmp: str = ""

    @property
    def module(self) -> str:
        return "ondol.tools." + self.name.replace("-", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sets, *self.yields_to, *self.keeps)))


class Plan(Record):
    """What will be done for a tool in this job."""

    managed: bool
    #: Variables to set for the command.
    env: Mapping[str, str] = {}
    #: One sentence if the user's own settings changed what happens; empty otherwise.
    remark: str = ""


ROWS: tuple[Row, ...] = (
    Row(
        "triton",
        "B",
        "GPU kernels compiled by Triton, and its helper libraries",
        "3.4 to 3.9",
        {"TRITON_CACHE_DIR": "{cache}"},
        ("{TRITON_CACHE_DIR}", "{TRITON_HOME}/.triton/cache", "{HOME}/.triton/cache"),
        yields_to=("TRITON_CACHE_DIR", "TRITON_HOME"),
        keeps=("TRITON_CACHE_MANAGER",),
        fingerprint="helper libraries: processor, C library, Python's ABI; kernels: nothing",
    ),
    Row(
        "inductor",
        "A",
        "graphs and C++ kernels compiled by torch.compile",
        "2.11 to 2.13",
        {"TORCHINDUCTOR_CACHE_DIR": "{cache}"},
        ("{TORCHINDUCTOR_CACHE_DIR}", "{TMP}/torchinductor_{USER}"),
        yields_to=("TORCHINDUCTOR_CACHE_DIR",),
        keeps=(
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
            "TORCHINDUCTOR_FX_GRAPH_CACHE",
            "TORCHINDUCTOR_AUTOGRAD_CACHE",
        ),
        fingerprint="what is made for the processor: its features, C library, compiler, ATEN_CPU_CAPABILITY; kernels "
        "and headers also torch's version and place; the rest: nothing",
        note="Travels: graphs (pickles that carry their Triton kernels), C++ kernels, tuning results, and precompiled "
        "headers, 150 MB each, 20 MB packed: a job without one builds it first, even if everything else is a hit. "
        "Stays: sources, locks, the benchmarks of max-autotune, what Dynamo remembers of shapes; and from an adopted "
        "cache all that was made for a processor, because it does not say for which. A user without a name gets "
        "LOGNAME=uid_<number>: torch before 2.13 fails without.",
        below_tmp="torchinductor_{USER}",
    ),
    Row(
        "jax",
        "A",
        "programs compiled by JAX and XLA",
        "0.10",
        {"JAX_COMPILATION_CACHE_DIR": "{cache}", "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none"},
        ("{JAX_COMPILATION_CACHE_DIR}",),
        yields_to=("JAX_COMPILATION_CACHE_DIR",),
        keeps=("JAX_ENABLE_COMPILATION_CACHE",),
        fingerprint="processor and its features, C library",
        note="Without Ondol JAX keeps nothing unless told to. XLA's own caches are off: with them the key holds the "
        "cache's path, and no other place would ever hit.",
    ),
    Row(
        "torch-extensions",
        "C",
        "C++ and CUDA extensions that PyTorch builds when they are loaded",
        "PyTorch 2.13",
        {"TORCH_EXTENSIONS_DIR": "{cache}"},
        ("{TORCH_EXTENSIONS_DIR}", "{CACHE_HOME}/torch_extensions"),
        yields_to=("TORCH_EXTENSIONS_DIR",),
        apart=("torch",),
        fingerprint="processor and its features, C library; by content: sources, headers, compilers, PyTorch's version",
        note="Each Python and PyTorch version has a directory of its own, which PyTorch gives up when the variable is "
        "set. Hits need the checkout and PyTorch at the same paths; sources given inline only PyTorch. A build that "
        "was killed leaves a lock, for which PyTorch waits for ever: never in the store, and gone with the room.",
    ),
    Row(
        "tvm-ffi",
        "C",
        "C++ and CUDA modules that TVM FFI builds when they are loaded",
        "0.1.12",
        {"TVM_FFI_CACHE_DIR": "{cache}"},
        ("{TVM_FFI_CACHE_DIR}", "{HOME}/.cache/tvm-ffi"),
        yields_to=("TVM_FFI_CACHE_DIR",),
        apart=("tvm_ffi",),
        fingerprint="processor and its features, C library; by content: sources, headers, compilers",
    ),
    Row(
        "flashinfer",
        "C",
        "kernels that FlashInfer builds, and those that it downloads",
        "0.6.18 and 0.7.2",
        {"FLASHINFER_WORKSPACE_BASE": "{cache}"},
        ("{FLASHINFER_WORKSPACE_BASE}/.cache/flashinfer", "{HOME}/.cache/flashinfer"),
        yields_to=("FLASHINFER_WORKSPACE_BASE",),
        keeps=("FLASHINFER_CUBIN_DIR",),
        fingerprint="processor and its features, C library; by content: sources, headers, compilers",
        note="Kernels of its CuTe DSL modules, autotuning results and modules that read downloaded headers through a "
        "link stay in the room.",
    ),
    Row(
        "vllm",
        "C",
        "models compiled by vLLM, and what it found out about model classes",
        "August 2026, layout only",
        {"VLLM_CACHE_ROOT": "{cache}"},
        ("{VLLM_CACHE_ROOT}", "{CACHE_HOME}/vllm"),
        yields_to=("VLLM_CACHE_ROOT",),
        keeps=("VLLM_DISABLE_COMPILE_CACHE",),
        fingerprint="processor and its features, C library",
        note="DeepGEMM kernels, autotuning results and memory plans, which vLLM keeps there too, stay in the room.",
    ),
)
BY_NAME = {row.name: row for row in ROWS}


def plan(row: Row, env: Mapping[str, str], cache_dir: str, *, asked: bool) -> Plan:
    """What to set so that the tool's cache is `cache_dir`.

    A value that the user has set wins, unless the user `asked` Ondol for this tool by name; either way it is said.
    """
    theirs = [name for name in row.yields_to if env.get(name)]
    if theirs and not asked:
        was = f"{theirs[0]}={env[theirs[0]]}"
        return Plan(
            False, {}, f"{row.name}: {was} is set and left as it is (to let Ondol manage it: --tools {row.name})"
        )
    remarks = [f"{name} is replaced for this command" for name in theirs if name in row.sets]
    remarks += [f"{name}={env[name]} is kept" for name in row.keeps if env.get(name)]
    ours = {
        name: value.replace("{cache}", cache_dir)
        for name, value in row.sets.items()
        if name in row.yields_to or not env.get(name)
    }
    return Plan(True, ours, f"{row.name}: " + ", ".join(remarks) if remarks else "")


def below_tmp(row: Row, user: str) -> str:
    """The name of its directory below TMPDIR for this user; what cannot be in a name is replaced as torch does it."""
    return row.below_tmp.replace("{USER}", "".join("_" if letter in '\\/:*?"<>|' else letter for letter in user))


def default_location(row: Row, env: Mapping[str, str]) -> str:
    """Where the tool's cache is without Ondol, as far as the environment tells; empty if it keeps none."""
    home = env.get("HOME") or os.path.expanduser("~")
    known = {
        "HOME": home,
        "CACHE_HOME": env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"),
        "TMP": env.get("TMPDIR") or "/tmp",
        "USER": identity.user_name(env) or f"uid_{os.getuid()}",
    }
    for place in row.places:
        try:
            path = place.format_map({**{name: value for name, value in env.items() if value}, **known})
        except KeyError:
            continue  # names a variable that is not set
        return path
    return ""
