"""From what the user typed to an engine; None for this machine alone, whose one agent needs no command to reach it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ondol.engines.api import Engine
from ondol.engines.slurm import SlurmEngine
from ondol.engines.template import PRESETS, Preset, TemplateEngine, members, split
from ondol.errors import UsageError
from ondol.fleet import devices
from ondol.host import own_python

LOCAL = "local"


@dataclass(frozen=True)
class NodeOptions:
    """The options that say where nodes come from."""

    engine: str = LOCAL
    launch: str = ""
    nodes: str = ""
    slurm: str = ""
    srun: str = ""
    agent: str = ""
    devices: str = "auto"
    directory: str = ""

    @property
    def far(self) -> bool:
        """Somewhere else than in this process's own machine."""
        return self.engine != LOCAL or bool(self.launch)


def choose(wish: NodeOptions, env: Mapping[str, str]) -> Engine | None:
    """Raises `UsageError` for what cannot be; asks nobody for anything yet."""
    name, _, target = wish.engine.partition(":")
    if wish.launch:
        if wish.engine != LOCAL:
            raise UsageError("--engine and --launch are two ways to say the same: choose one")
        return _from_template(wish, "launch", Preset(wish.launch, agent=""))
    if (wish.slurm or wish.srun) and name != "slurm":
        raise UsageError(f"--{'slurm' if wish.slurm else 'srun'} needs --engine slurm")
    if name == LOCAL:
        return None
    if name == "slurm":
        if target:
            raise UsageError(f"--engine {wish.engine}: slurm takes nothing after a colon", hint='--slurm "-N 2 …"')
        engine = SlurmEngine(_agent(wish, ""), dict(env), wish.slurm, wish.srun)
        engine.check()
        return engine
    if name not in PRESETS:
        known = ", ".join([LOCAL, "slurm", *(f"{preset}:…" for preset in PRESETS)])
        raise UsageError(f"--engine: there is no engine {name!r}", hint=f"{known}; or --launch with a command")
    if not target:
        raise UsageError(f"--engine {name} needs a target", hint=f"--engine {name}:{_example(name)}")
    return _from_template(wish, name, PRESETS[name], target)


def _example(name: str) -> str:
    return {"ssh": "HOST1,HOST2", "kubectl": "POD"}.get(name, "IMAGE")


def _from_template(wish: NodeOptions, name: str, preset: Preset, target: str = "") -> TemplateEngine:
    words = split(preset.template)
    nodes, target = (target, "") if preset.machines else (wish.nodes, target)
    made = TemplateEngine(
        name,
        words,
        _agent(wish, preset.agent),
        members(words, nodes, _indices(wish) if "device" in preset.template else []),
        target=target,
        directory=wish.directory,
        gpus="" if wish.devices.partition(":")[0] in {"cpu", "sim", "none"} else preset.gpus,
    )
    if preset.bring and own_python.archive() and not wish.agent:
        made.agent = ["python3", own_python.archive(), "node"]
        made.bring = preset.bring.format(shlex.quote(own_python.archive()))
    return made


def _agent(wish: NodeOptions, otherwise: str) -> list[str]:
    """The command of the node program."""
    own = shlex.split(wish.agent or otherwise)
    return [*(own or own_python.python("ondol")), "node"]


def _indices(wish: NodeOptions) -> list[str]:
    """`{device}` stands for the numbers that `--devices` gives, counted on the machine that starts the commands."""
    return [device.visible or device.name for device in devices.choose(wish.devices, {}).devices]
