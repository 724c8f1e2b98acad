"""From what the user typed to an engine. The one agent of this machine alone needs none: nobody asks then."""

import shlex
from collections.abc import Mapping

from ondol.engines.api import LOCAL, Engine, NodeOptions
from ondol.engines.slurm import SlurmEngine
from ondol.engines.template import PRESETS, Preset, TemplateEngine, members, split
from ondol.errors import UsageError
from ondol.fleet import devices
from ondol.host import own_python


def choose(wish: NodeOptions, env: Mapping[str, str]) -> Engine:
    """Raises `UsageError` for what cannot be; asks nobody for anything yet."""
    name, _, target = wish.engine.partition(":")
    if wish.launch:
        if wish.engine != LOCAL:
            raise UsageError("--engine and --launch are two ways to say the same: choose one")
        return _from_template(wish, "launch", Preset(wish.launch, agent=""))
    if (wish.slurm or wish.srun) and name != "slurm":
        raise UsageError(f"--{'slurm' if wish.slurm else 'srun'} needs --engine slurm")
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
        example = {"ssh": "HOST1,HOST2", "kubectl": "POD"}.get(name, "IMAGE")
        raise UsageError(f"--engine {name} needs a target", hint=f"--engine {name}:{example}")
    return _from_template(wish, name, PRESETS[name], target)


def _from_template(wish: NodeOptions, name: str, preset: Preset, target: str = "") -> TemplateEngine:
    words = split(preset.template)
    nodes, target = (target, "") if preset.machines else (wish.nodes, target)
    # `{device}` stands for the numbers that `--devices` gives, counted on the machine that starts the commands.
    found = devices.choose(wish.devices, {}).devices if "device" in preset.template else []
    made = TemplateEngine(
        name,
        words,
        _agent(wish, preset.agent),
        members(words, nodes, [device.visible or device.name for device in found]),
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
