"""Every tool as one row: what Ondol sets for it, whose value wins, where its cache is without us.

The environment of a job, `ondol tools` and `docs/reference/tools.md` all come from these rows. They are plain values:
the code that understands a tool's files (`Row.module`) is imported only by a job that has such files.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ondol.host import identity

#: How a cache can be shared, from the survey of the field.
SHARING = {
    "A": "single files, merged freely",
    "B": "directories, merged whole",
    "C": "bound to an absolute path",
    "D": "changed in place: one state at a time",
    "E": "has its own protocol, guarded and never copied",
}
#: The classes that a job gets without asking. C needs a mount namespace of its own and E the tool's own protocol:
#: whoever wants them names them.
UNASKED = "ABD"
#: The classes whose entries are whole one by one: they may come and go while the tool is at work.
ONE_BY_ONE = "AB"
#: The class whose files we never touch: such a row is at most set up, never filled and never harvested.
GUARDED = "E"


class Row(NamedTuple):
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
    #: Variables by which a user moves the cache, if not those of `sets`: their values win, unless the user asked for
    #: the tool by name, or others write in that place too. The first that is set is the one that the tool obeys.
    yields_to: tuple[str, ...] = ()
    #: Variables that move along with the cache where the user has set them, as `sets`.
    along: Mapping[str, str] = {}
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
    #: Why a job gets it only by name, although its files could be shared; empty if it need not be asked for.
    risk: str = ""
    #: Variables that are set too where the setting `NAME-autotune` is on: they make the tool keep its results.
    tuning: Mapping[str, str] = {}
    #: The setting that switches it on: a directory, as `{url}` in `sets`; without one nothing is set.
    setting: str = ""
    #: What is set instead in a job that may only read what others made.
    reading: Mapping[str, str] = {}
    #: The module of `ondol.tools` with the code that understands its files.
    module: str = "shaped_tools"

    @property
    def unasked(self) -> bool:
        return self.sharing in UNASKED and not self.risk

    @property
    def travels(self) -> bool:
        """Whether its entries go through the store."""
        return self.sharing != GUARDED

    @property
    def moved_by(self) -> tuple[str, ...]:
        return self.yields_to or tuple(self.sets)

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.sets, *self.moved_by, *self.along, *self.keeps)))


class ToolPlan(NamedTuple):
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
        keeps=("TRITON_CACHE_MANAGER", "TRITON_CACHE_AUTOTUNING"),
        fingerprint="kernels: nothing; helper libraries: architecture, C library, Python's ABI; autotuning results: "
        "driver and device models",
        note="Autotuning results are shared where they are kept anyway, because the program says "
        "triton.autotune(cache_results=True) or the user TRITON_CACHE_AUTOTUNING=1: later jobs run the configuration "
        "that an earlier one measured to be the fastest. `on` tells Triton to keep them always; `off` leaves them in "
        "the room.",
        tuning={"TRITON_CACHE_AUTOTUNING": "1"},
        module="triton",
    ),
    Row(
        "tilelang",
        "B",
        "kernels compiled by TileLang, and what its autotuner measured",
        "0.1.15",
        {"TILELANG_CACHE_DIR": "{cache}"},
        ("{TILELANG_CACHE_DIR}", "{HOME}/.tilelang/cache"),
        along={"TILELANG_TMP_DIR": "{cache}/tmp"},  # TileLang before 0.1.14 renames from there into its cache
        keeps=("TILELANG_DISABLE_CACHE", "TILELANG_AUTO_TUNING_DISABLE_CACHE"),
        fingerprint="kernels: architecture, C library; autotuning results: driver and device models too",
        note="An entry travels only if it is what its own manifest says. TileLang keeps autotuning results by itself, "
        "so they are shared unless tilelang.autotune is off.",
    ),
    Row(
        "inductor",
        "A",
        "graphs and C++ kernels compiled by torch.compile",
        "2.11 to 2.13",
        {"TORCHINDUCTOR_CACHE_DIR": "{cache}"},
        ("{TORCHINDUCTOR_CACHE_DIR}", "{TMP}/torchinductor_{USER}"),
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
        module="inductor",
    ),
    Row(
        "jax",
        "A",
        "programs compiled by JAX and XLA",
        "0.10",
        {
            "JAX_COMPILATION_CACHE_DIR": "{cache}",
            "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
            "JAX_COMPILATION_CACHE_MAX_SIZE": "-1",
        },
        ("{JAX_COMPILATION_CACHE_DIR}",),
        yields_to=("JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_MAX_SIZE"),
        keeps=("JAX_ENABLE_COMPILATION_CACHE",),
        fingerprint="processor and its features, C library",
        note="Without Ondol JAX keeps nothing unless told to, and then only what took a second to compile. XLA's own "
        "caches are off: with them the key holds the cache's path, and no other place would ever hit.",
    ),
    Row(
        "cupy",
        "A",
        "kernels compiled by CuPy",
        "14.2",
        {"CUPY_CACHE_DIR": "{cache}"},
        ("{CUPY_CACHE_DIR}", "{HOME}/.cupy/kernel_cache"),
        keeps=("CUPY_CACHE_IN_MEMORY",),
        note="CuPy writes files that only their owner can read; a plain shared cache is a PermissionError for "
        "everybody else.",
    ),
    Row(
        "cute-dsl",
        "A",
        "kernels compiled by the CuTe DSL of CUTLASS",
        "4.8",
        {"CUTE_DSL_CACHE_DIR": "{cache}"},
        ("{CUTE_DSL_CACHE_DIR}", "{TMP}/{USER}/cutlass_python_cache"),
        keeps=("CUTE_DSL_DISABLE_FILE_CACHING", "CUTE_DSL_NO_CACHE"),
        fingerprint="architecture, C library",
    ),
    Row(
        "helion",
        "A",
        "what Helion's autotuner measured",
        "1.5",
        {"HELION_CACHE_DIR": "{cache}", "HELION_AUTOTUNE_CACHE": "StrictLocalAutotuneCache"},
        ("{HELION_CACHE_DIR}", "{TORCHINDUCTOR_CACHE_DIR}/helion", "{TMP}/torchinductor_{USER}/helion"),
        yields_to=("HELION_CACHE_DIR",),
        keeps=("HELION_AUTOTUNE_CACHE", "HELION_SKIP_CACHE"),
        fingerprint="driver and device models; library versions by its strict key, which is what is set",
        note="A best_config is nothing but an autotuning result, so a performance job gets none of it. The kernels "
        "themselves are triton's and cute-dsl's.",
    ),
    Row(
        "deepgemm",
        "B",
        "kernels compiled by DeepGEMM",
        "2.x (54e22612)",
        {"DG_JIT_CACHE_DIR": "{cache}"},
        ("{DG_JIT_CACHE_DIR}", "{HOME}/.deep_gemm"),
        note="The path at which DeepGEMM is installed is in its key: jobs hit that have it at the same place.",
    ),
    Row(
        "warp",
        "B",
        "modules compiled by NVIDIA Warp, and its link-time code",
        "1.19",
        {"WARP_CACHE_PATH": "{cache}"},
        ("{WARP_CACHE_PATH}", "{CACHE_HOME}/warp"),
        fingerprint="code for the CPU: processor and its features, C library; for GPUs: nothing",
    ),
    Row(
        "sglang-jit",
        "B",
        "modules compiled by SGLang's JIT",
        "0.5.23",
        {"SGLANG_JIT_CACHE_DIR": "{cache}"},
        ("{SGLANG_JIT_CACHE_DIR}", "{HOME}/.cache/sglang/jit"),
        keeps=("SGLANG_JIT_FORCE_RECOMPILE",),
        fingerprint="architecture, C library",
        note="The library and its list of dependencies travel; objects and build files, which name absolute paths, "
        "stay behind.",
    ),
    Row(
        "cuda-driver",
        "A",
        "PTX that the NVIDIA driver compiled (ComputeCache)",
        "driver 580",
        {"CUDA_CACHE_PATH": "{cache}"},
        ("{CUDA_CACHE_PATH}", "{HOME}/.nv/ComputeCache"),
        keeps=("CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_FORCE_PTX_JIT"),
        fingerprint="driver and device models",
        note="The driver makes its directories 0700, so that no other user ever hits in a plain shared one. Its index "
        "stays behind: the driver does without and makes a new one.",
    ),
    Row(
        "cuda-python",
        "A",
        "programs kept by cuda.core's FileStreamProgramCache",
        "1.2",
        {},
        ("{CACHE_HOME}/cuda-python/program-cache",),
        note="No variable moves it: a program names the directory itself. Asked for by name it is filled, and the "
        'program opens it as FileStreamProgramCache(os.environ["ONDOL_ROOM"] + "/cache/cuda-python").',
    ),
    Row(
        "numba",
        "D",
        "functions compiled by Numba with cache=True",
        "0.68",
        {"NUMBA_CACHE_DIR": "{cache}"},
        ("{NUMBA_CACHE_DIR}",),
        keeps=("NUMBA_CACHE_LOCATOR_CLASSES",),
        fingerprint="architecture, C library",
        note="Its key holds the absolute directory of the source, so that other checkouts miss.",
        risk="Numba does not see that a function called from another file, or a global variable, has changed, and "
        "would serve the old code",
    ),
    Row(
        "cutile",
        "D",
        "kernels compiled by cuTile (a SQLite database)",
        "1.7",
        {"CUDA_TILE_CACHE_DIR": "{cache}"},
        ("{CUDA_TILE_CACHE_DIR}", "{CACHE_HOME}/cutile-python"),
        keeps=("CUDA_TILE_CACHE_SIZE",),
        note="Two databases are not merged: the newest one is filled.",
    ),
    Row(
        "miopen",
        "D",
        "what MIOpen's search and tuning found",
        "3.3",
        {"MIOPEN_USER_DB_PATH": "{cache}"},
        ("{MIOPEN_USER_DB_PATH}", "{HOME}/.config/miopen"),
        keeps=("MIOPEN_DISABLE_CACHE", "MIOPEN_CUSTOM_CACHE_DIR"),
        fingerprint="driver and device models",
        note="The newest of each file is filled, never for a performance job: they are measured. MIOpen's compiled "
        "kernels stay where they are: a directory given as MIOPEN_CUSTOM_CACHE_DIR is not kept apart by version.",
    ),
    Row(
        "torch-extensions",
        "C",
        "C++ and CUDA extensions that PyTorch builds when they are loaded",
        "PyTorch 2.13",
        {"TORCH_EXTENSIONS_DIR": "{cache}"},
        ("{TORCH_EXTENSIONS_DIR}", "{CACHE_HOME}/torch_extensions"),
        apart=("torch",),
        fingerprint="processor and its features, C library; by content: sources, headers, compilers, PyTorch's version",
        note="Each Python and PyTorch version has a directory of its own, which PyTorch gives up when the variable is "
        "set. Hits need the checkout and PyTorch at the same paths; sources given inline only PyTorch. A build that "
        "was killed leaves a lock, for which PyTorch waits for ever: never in the store, and gone with the room.",
        module="ninja_built",
    ),
    Row(
        "tvm-ffi",
        "C",
        "C++ and CUDA modules that TVM FFI builds when they are loaded",
        "0.1.12",
        {"TVM_FFI_CACHE_DIR": "{cache}"},
        ("{TVM_FFI_CACHE_DIR}", "{HOME}/.cache/tvm-ffi"),
        apart=("tvm_ffi",),
        fingerprint="processor and its features, C library; by content: sources, headers, compilers",
        module="ninja_built",
    ),
    Row(
        "flashinfer",
        "C",
        "kernels that FlashInfer builds, and those that it downloads",
        "0.6.18 and 0.7.2",
        {"FLASHINFER_WORKSPACE_BASE": "{cache}"},
        ("{FLASHINFER_WORKSPACE_BASE}/.cache/flashinfer", "{HOME}/.cache/flashinfer"),
        keeps=("FLASHINFER_CUBIN_DIR",),
        fingerprint="processor and its features, C library; by content: sources, headers, compilers",
        note="Kernels of its CuTe DSL modules, autotuning results and modules that read downloaded headers through a "
        "link stay in the room.",
        module="ninja_built",
    ),
    Row(
        "vllm",
        "C",
        "models compiled by vLLM, and what it found out about model classes",
        "August 2026, layout only",
        {"VLLM_CACHE_ROOT": "{cache}"},
        ("{VLLM_CACHE_ROOT}", "{CACHE_HOME}/vllm"),
        keeps=("VLLM_DISABLE_COMPILE_CACHE",),
        fingerprint="processor and its features, C library",
        note="DeepGEMM kernels, autotuning results and memory plans, which vLLM keeps there too, stay in the room.",
        module="vllm",
    ),
    Row(
        "ccache",
        "E",
        "C, C++ and CUDA objects",
        "4.7",
        {"CCACHE_DIR": "{cache}", "CCACHE_REMOTE_STORAGE": "{url}"},
        ("{CCACHE_DIR}", "{CACHE_HOME}/ccache"),
        yields_to=("CCACHE_DIR", "CCACHE_REMOTE_STORAGE"),
        keeps=("CCACHE_CONFIGPATH", "CCACHE_DISABLE", "CCACHE_READONLY"),
        fingerprint="",
        note="Set up by ccache.shared = DIR: a private cache for each job in front of DIR, which is written only by "
        "jobs that may publish to `main`. ccache then reads its configuration from CCACHE_CONFIGPATH alone.",
        setting="ccache-shared",
        reading={"CCACHE_REMOTE_STORAGE": "{url}|read-only"},
    ),
    Row(
        "sccache",
        "E",
        "C, C++, CUDA and Rust objects",
        "0.16",
        {},
        ("{SCCACHE_DIR}", "{CACHE_HOME}/sccache"),
        fingerprint="",
        note="left alone: its server outlives the job with the settings it was started with, and knows one local "
        "directory, so that nothing private can stand in front of a shared one.",
    ),
    Row(
        "uv",
        "E",
        "packages unpacked by uv",
        "0.12, 0.13",
        {},
        ("{UV_CACHE_DIR}", "{CACHE_HOME}/uv"),
        fingerprint="",
        note="its cache has a protocol of its own; ondol guard --cache DIR -- uv … keeps jobs apart and heals it.",
    ),
    Row(
        "pip",
        "E",
        "packages downloaded and built by pip",
        "23 to 26",
        {},
        ("{PIP_CACHE_DIR}", "{CACHE_HOME}/pip"),
        fingerprint="",
        note="its cache has a protocol of its own; ondol guard --cache DIR -- pip … keeps jobs apart and heals it.",
    ),
)
BY_NAME = {row.name: row for row in ROWS}


def plan(
    row: Row,
    env: Mapping[str, str],
    cache_dir: str,
    *,
    asked: bool,
    tuning: bool = False,
    publishes: bool = True,
    setting: str = "",
    why_common: Callable[[str], str] = lambda _: "",
) -> ToolPlan:
    """What to set so that the tool's cache is `cache_dir`.

    A value that the user has set wins, unless the user `asked` Ondol for this tool by name, or it names a directory
    that is not the user's own, as `why_common` tells: there the job would die of other users' files. Either way the
    user is told.

    `tuning`: the tool is told to keep autotuning results. `publishes`: what the job makes may be given to others.
    `setting`: the value of the row's own setting.
    """
    if not row.sets or (row.setting and not setting):
        return _without_variables(row, cache_dir, asked=asked)
    theirs = [name for name in row.moved_by if env.get(name)]
    remarks = [f"{name} is replaced for this command" for name in theirs if name in row.sets]
    if theirs and not asked:
        place = env[theirs[0]]
        why = why_common(place) if os.path.isabs(place) else ""
        was = f"{theirs[0]}={place} is"
        if not why:
            keep = f"{was} set and left as it is (to let Ondol manage it: --tools {row.name})"
            return ToolPlan(False, {}, f"{row.name}: {keep}")
        remarks = [f"{was} replaced for this command: {why} (to keep it: --tools auto,-{row.name})"]
    remarks += [f"{name}={env[name]} is kept" for name in row.keeps if env.get(name)]
    sets = {**row.sets, **(row.tuning if tuning else {}), **({} if publishes else row.reading)}
    values = {
        **{name: value for name, value in sets.items() if name in row.moved_by or not env.get(name)},
        **{name: value for name, value in row.along.items() if env.get(name)},
    }
    ours = {name: _filled_in(value, cache_dir, setting) for name, value in values.items()}
    return ToolPlan(True, ours, f"{row.name}: " + ", ".join(remarks) if remarks else "")


def _filled_in(value: str, cache_dir: str, setting: str) -> str:
    if "{url}" in value:
        from urllib.parse import quote

        value = value.replace("{url}", "file:" + quote(os.path.abspath(setting)))
    return value.replace("{cache}", cache_dir)


def _without_variables(row: Row, cache_dir: str, *, asked: bool) -> ToolPlan:
    if not asked:
        return ToolPlan(False)
    if row.setting:
        return ToolPlan(False, {}, f"{row.name}: left as it is, because {row.setting} is not set")
    if not row.travels:
        return ToolPlan(False, {}, f"{row.name}: nothing is set: {row.note}")
    return ToolPlan(True, {}, f"{row.name}: no variable moves its cache; the one of this job is {cache_dir}")


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
        with suppress(KeyError):  # it names a variable that is not set
            return place.format_map({**{name: value for name, value in env.items() if value}, **known})
    return ""
