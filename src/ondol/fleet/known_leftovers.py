"""What libraries start once and keep for the life of a process, so that it is not told as an item's doing."""

import sys
from typing import Any, NamedTuple


class Known(NamedTuple):
    """One library's habit."""

    library: str
    threads: tuple[str, ...] = ()
    #: Part of its helper process's command line.
    child: str = ""
    #: It talks with its helper through pipes, which appear together with it.
    pipes: bool = False


KNOWN = (
    Known("Inductor's compile pool", ("InductorSubproc",), "/torch/_inductor/compile_worker/", pipes=True),
    Known("tqdm", ("tqdm_monitor",)),
    Known("multiprocessing, loky", child=".resource_tracker import main", pipes=True),
    Known("multiprocessing", child="multiprocessing.forkserver import main", pipes=True),
)
#: Set by Inductor and Triton at their first compilation where nobody had set them.
VARIABLES = frozenset(
    {
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
        "CUDA_HOME",
        "KMP_DUPLICATE_LIB_OK",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PTXAS_PATH",
    }
)
#: Ends of directories that importing a library puts on `sys.path`.
DIRECTORIES = ("/setuptools/_vendor",)


def of_thread(name: str) -> Known | None:
    return next((known for known in KNOWN if name in known.threads), None)


def of_child(command: str) -> Known | None:
    return next((known for known in KNOWN if known.child and known.child in command), None)


def pooled_threads() -> set[int | None]:
    """Threads of Inductor's own pool carry no name that could tell them from anybody else's: the pool knows them."""
    pool = _inductors_pool()
    try:
        return {t.ident for t in pool()._threads} if pool.cache_info().currsize else set()
    except AttributeError:
        return set()  # another version's: then they are told


def make_again() -> None:
    """In a fork, which has none of these threads: whoever needs them starts them. Inductor's compile pool does that."""
    getattr(_inductors_pool(), "cache_clear", int)()
    bar = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    if getattr(bar, "monitor", None) is not None:
        bar.monitor = None  # type: ignore[union-attr]


def _inductors_pool() -> Any:
    return getattr(getattr(sys.modules.get("torch._inductor.async_compile"), "AsyncCompile", None), "pool", None)
