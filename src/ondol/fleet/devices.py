"""Which devices a run uses, and how one worker is shown only its own.

A list that was already narrowed (`CUDA_VISIBLE_DEVICES=4,5` from Slurm or a colleague) is composed with: device 1 of
such a run is the machine's device 5, and that is what the worker's variable says.
"""

import ctypes
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ondol.errors import UsageError
from ondol.fleet.model import Device
from ondol.fleet.starts import DEVICE_ENV
from ondol.foreign_text import is_number
from ondol.host import accelerator, own_python
from ondol.units import parse_size

#: Kind → the variables that narrow what a process sees. The first one that is set counts, and it alone is written: HIP
#: counts inside what ROCR leaves, and one number in both would be the second of one device. None is set: the last.
VISIBLE: dict[str, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
    "ascend": ("ASCEND_RT_VISIBLE_DEVICES",),
    "sim": (),
    "cpu": (),
}
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
#: What people and Slurm write to hide all devices; CUDA reads a list up to the first of these.
_HIDES_THE_REST = {"-1", "NoDevFiles"}
_ADVICE = "one of auto, cuda, rocm, xpu, ascend, 0-3,6, cuda:0,2, cpu:4, sim:2, none"


class Fleet(NamedTuple):
    """The devices of a run."""

    devices: Sequence[Device] = ()
    #: How they were found, for the summary.
    how: str = ""
    #: Extra variables of `--device-env`.
    extra: tuple[str, ...] = ()
    #: What the collecting process must have in its environment, so that its first device is the run's first one; empty
    #: where all devices of the machine are of one model.
    collecting: Mapping[str, str] = {}

    def environment(self, chosen: Sequence[Device]) -> dict[str, str]:
        """What a worker on these devices must have in its environment."""
        if not chosen:
            return {}
        visible = ",".join(d.visible for d in chosen)
        variables = (chosen[0].variable, *self.extra)
        told = {name: visible for name in variables if name}
        return {**told, DEVICE_ENV: ",".join(d.name for d in chosen)}

    @property
    def homes(self) -> list[dict[str, str]]:
        """For workers that hold their device while they wait: only where somebody can say how much of it is free."""
        return [self.environment([d]) for d in self.devices if d.kind == "cuda" and not d.of_other_model]


def parse_indices(text: str) -> list[int]:
    """`0-3,6` → [0, 1, 2, 3, 6]."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if not match:
            raise UsageError(f"--devices: cannot read {text!r}", hint=_ADVICE)
        first, last = int(match[1]), int(match[2] or match[1])
        found += range(first, last + 1)
    if len(set(found)) != len(found):
        raise UsageError(f"--devices: {text!r} names a device twice")
    return found


def choose(spec: str, env: Mapping[str, str], extra: tuple[str, ...] = (), probe: str = "") -> Fleet:
    """Turn `--devices` into devices. Never initialises one: NVML and the vendors' files only."""
    found = _choose(spec, env, extra)
    return found._replace(devices=[device._replace(probe=_probe(probe, device.kind)) for device in found.devices])


def _probe(own: str, kind: str) -> tuple[str, ...]:
    """The command that asks for a device's health: the user's, or ours where there is one."""
    if own:
        return tuple(shlex.split(own))
    return tuple(own_python.python("ondol.host.gpu_context")) if kind == "cuda" else ()


def _choose(spec: str, env: Mapping[str, str], extra: tuple[str, ...]) -> Fleet:
    spec = spec.strip()
    if spec in {"none", ""}:
        return Fleet([Device("cpu0", "cpu")], "no devices: one CPU worker", extra)
    kind, _, rest = spec.partition(":")
    if kind in {"cpu", "sim"}:
        count = _count(rest, default=max(1, (os.cpu_count() or 2) // 2) if kind == "cpu" else 1)
        return Fleet([Device(f"{kind}{n}", kind, str(n)) for n in range(count)], f"{count} {kind} slots", extra)
    if spec == "auto":
        vendor = _vendor_here(env)
        variable, known = _narrowed(vendor, env) if vendor else ("", None)
        if vendor and known != []:
            return _of_kind(vendor, None, env, extra)
        found = _choose("cpu", env, extra)
        why = f"{variable}={env[variable]} hides all devices" if vendor else "no accelerator found"
        return found._replace(how=f"{why}: {found.how}")
    if kind in VISIBLE:
        return _of_kind(kind, parse_indices(rest) if rest else None, env, extra)
    return _of_kind(_vendor_here(env) or "cuda", parse_indices(spec), env, extra)


def _count(text: str, default: int) -> int:
    if not text:
        return default
    if not is_number(text) or int(text) == 0:
        raise UsageError(f"--devices: {text!r} is not a number of slots", hint=_ADVICE)
    return int(text)


def _vendor_here(env: Mapping[str, str]) -> str | None:
    if nvidia_count():
        return "cuda"
    if Path("/dev/kfd").exists():
        return "rocm"
    if list(Path("/dev").glob("davinci[0-9]*")):
        return "ascend"
    for kind, names in VISIBLE.items():
        if any(env.get(name) for name in names):
            return kind
    return None


def _narrowed(kind: str, env: Mapping[str, str]) -> tuple[str, list[str] | None]:
    """The variable that counts, and the devices that it leaves; None if it is not set."""
    variable = next((name for name in VISIBLE[kind] if env.get(name) is not None), VISIBLE[kind][-1])
    if variable not in env:
        return variable, None
    parts = (part.strip() for part in env[variable].split(","))
    return variable, [part for part in takewhile(lambda part: part not in _HIDES_THE_REST, parts) if part]


def _of_kind(kind: str, wanted: list[int] | None, env: Mapping[str, str], extra: tuple[str, ...]) -> Fleet:
    variable, narrowed = _narrowed(kind, env)
    if narrowed is not None:
        known = narrowed
        how = f"{variable}={env[variable]}"
    else:
        known = [str(n) for n in range(_physical_count(kind, wanted))]
        how = f"{len(known)} {kind} devices on this machine"
    indices = list(range(len(known))) if wanted is None else wanted
    beyond = [n for n in indices if n >= len(known)]
    if beyond or not indices:
        raise UsageError(
            f"--devices: there is no {kind} device {beyond[0] if beyond else 0}",
            because=f"{how}, so {len(known)} can be used",
            hint="--devices auto, or --devices cpu:2 to run without an accelerator",
        )
    # CUDA numbers the fastest first and NVML by the bus, unless CUDA is told to follow the bus too.
    order = env.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID" if narrowed is None else "")
    cards = _cards(kind, known, order)
    models = [cards[name].model for name in known]
    first = models[indices[0]]
    devices = [
        cards[known[n]]._replace(name=f"{kind}{n}", variable=variable, of_other_model=models[n] != first)
        for n in indices
    ]
    fleet = Fleet(devices, how, extra)
    if len(set(models)) == 1:
        return fleet
    seen = fleet.environment(sorted(devices, key=lambda device: device.of_other_model))
    del seen[DEVICE_ENV]
    return fleet._replace(collecting={**seen, **({"CUDA_DEVICE_ORDER": order} if order and kind == "cuda" else {})})


def _cards(kind: str, known: list[str], order: str) -> dict[str, Device]:
    """Each with what its driver says of it."""
    amd = {str(n): (0, model) for n, model in enumerate(accelerator.amd_models())} if kind == "rocm" else {}
    found = nvidia_cards() if kind == "cuda" else amd
    if kind == "cuda" and order != "PCI_BUS_ID" and len({model for _, model in found.values()}) > 1:
        # Somebody chose by CUDA's numbers. Which of the devices they mean only CUDA knows: no two are taken for alike.
        found |= {n: (0, f"CUDA's number {n}") for n in known if is_number(n)}
    unknown = (0, "")
    return {n: Device("", kind, n, found.get(n, unknown)[0], model=found.get(n, unknown)[1]) for n in known}


def _physical_count(kind: str, wanted: list[int] | None) -> int:
    if kind == "cuda":
        return nvidia_count()
    if kind == "rocm":
        return len(accelerator.amd_models()) or _said(wanted)
    if kind == "ascend":
        return len(list(Path("/dev").glob("davinci[0-9]*"))) or _said(wanted)
    return _said(wanted)


def _said(wanted: list[int] | None) -> int:
    """No way to count this vendor's devices here: believe what was typed."""
    return max(wanted) + 1 if wanted else 0


@contextmanager
def _nvml() -> Iterator[Any]:
    """Raises where there is none. Its Python binding takes long to import: not on a machine without its library."""
    ctypes.CDLL("libnvidia-ml.so.1")
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def nvidia_count() -> int:
    """Through NVML, which makes no context; through the driver's files when its Python binding is missing."""
    try:
        with _nvml() as nvml:
            return int(nvml.nvmlDeviceGetCount())
    except Exception:
        return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def nvidia_cards() -> dict[str, tuple[int, str]]:
    """Index, in the order of the PCI bus, and UUID → bytes of memory (0 when nobody can say) and model."""
    try:
        with _nvml() as nvml:
            found: dict[str, tuple[int, str]] = {}
            for n in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(n)
                card = int(nvml.nvmlDeviceGetMemoryInfo(handle).total), str(nvml.nvmlDeviceGetName(handle))
                found[str(n)] = found[str(nvml.nvmlDeviceGetUUID(handle))] = card
            return found
    except Exception:
        return {str(n): (0, model) for n, model in enumerate(accelerator.nvidia_models())}


def half_is_free(env: Mapping[str, str]) -> bool:
    """Of the memory of the device that this environment selects; False when nobody can say."""
    selected = env.get("CUDA_VISIBLE_DEVICES", "")
    try:
        with _nvml() as nvml:
            by_number = is_number(selected)
            find = nvml.nvmlDeviceGetHandleByIndex if by_number else nvml.nvmlDeviceGetHandleByUUID
            memory = nvml.nvmlDeviceGetMemoryInfo(find(int(selected) if by_number else selected))
            return int(memory.free) * 2 >= int(memory.total)
    except Exception:
        return False


def thread_caps(workers: int, env: Mapping[str, str]) -> dict[str, str]:
    """Cores divided by workers, for every pool that would otherwise take them all. What the user set stays, and one
    worker sees what plain pytest shows.
    """
    if workers <= 1:
        return {}
    share = str(max(1, len(os.sched_getaffinity(0)) // workers))
    return {name: share for name in THREAD_VARIABLES if name not in env}


def parse_memory(text: str | int) -> int:
    """`20GiB` → bytes."""
    if isinstance(text, int):
        return text
    try:
        return parse_size(text)
    except ValueError:
        raise UsageError(f"cannot read {text!r} as an amount of memory", hint='memory="20GiB"')
