"""Engines that are a command line: `--launch 'ssh HOST "exec {agent}"'`, and the presets, templates with a name.

A template is split once, as a shell would, and started without a shell. `{agent}` alone is as many words as the
command of the node program has; inside a word, or quoted, it is one text that a shell on the way will split again, so
it is quoted for that shell. `{node}`, `{device}`, `{target}` and `{directory}` stand for single values anywhere.
"""

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from ondol.engines.api import Engine
from ondol.errors import UsageError
from ondol.foreign_text import is_number

_HOLDER = re.compile(r"(?<!\{)\{(\w+)\}")
_ALONE = re.compile(r"(?<!\S)\{(agent|gpus|ondol)\}(?!\S)")
#: Nothing that a shell, a path or our own names (`node/device`) would read as more than a name.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]*")
KNOWN = ("agent", "node", "device", "target", "directory", "gpus", "ondol")


@dataclass(frozen=True)
class Preset:
    """A template by name. `{target}` is what follows the colon of `--engine NAME:TARGET`."""

    template: str
    #: How to ask for all GPUs, where that must be asked for.
    gpus: str = ""
    #: The target is a list of machines, one node each.
    machines: bool = False
    #: How Ondol is called there; empty: as here.
    agent: str = "python3 -m ondol"
    #: How `ondol.pyz`, if that is what runs here, comes to be at the same path there: `{ondol}`.
    bring: str = ""


# No --init: the node program reaps, and hears SIGTERM as the first process too; podman's is often not installed.
_RUN = "run -i --rm {gpus} {ondol} -v {directory}:{directory} -w {directory} {target} {agent}"
_VOLUME = "-v {0}:{0}:ro"
PRESETS = {
    "ssh": Preset(
        # A connection that is dead must show as dead; a password cannot be typed.
        'ssh -o BatchMode=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4 {node} "exec {agent}"',
        machines=True,
        agent="",
    ),
    "docker": Preset(f"docker {_RUN}", "--gpus all", bring=_VOLUME),
    "podman": Preset(f"podman {_RUN}", "--device nvidia.com/gpu=all", bring=_VOLUME),
    "apptainer": Preset(
        "apptainer exec {gpus} {ondol} --bind {directory} --pwd {directory} {target} {agent}",
        "--nv",
        bring="--bind {0}:{0}:ro",
    ),
    "enroot": Preset(
        "enroot start --rw {ondol} --mount {directory}:{directory} {target} {agent}", bring="--mount {0}:{0}"
    ),
    "kubectl": Preset("kubectl exec -i {node} -- {agent}", machines=True),
}


def split(template: str) -> list[str]:
    """Words, with placeholders that stand alone marked by a leading NUL. Raises `UsageError`."""
    try:
        words = shlex.split(_ALONE.sub("\0\\1", template))
    except ValueError as error:
        raise UsageError(f"--launch: {template!r} cannot be split into words", because=str(error))
    found = [name for word in words for name in _HOLDER.findall(word)] + [w[1:] for w in words if w.startswith("\0")]
    unknown = [name for name in found if name not in KNOWN]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in KNOWN)
        raise UsageError(f"--launch: there is no {{{unknown[0]}}}", hint=f"there are {known}")
    if not any("\0agent" in word or "{agent}" in word for word in words):
        raise UsageError(
            f"--launch: {template!r} does not say where the node program is started",
            hint="put {agent} there: --launch 'ssh HOST \"exec {agent}\"'",
        )
    return words


def fill(words: Sequence[str], many: dict[str, list[str]], values: dict[str, str]) -> list[str]:
    """The command for one node; `many` are the placeholders that stand for several words."""
    texts = {**values, **{name: shlex.join(several) for name, several in many.items()}}
    made: list[str] = []
    for word in words:
        if word[:1] == "\0" and word[1:] in many:
            made += many[word[1:]]
            continue
        # A placeholder between two blanks of a quoted word did not stand alone after all.
        for name in many:
            word = word.replace(f"\0{name}", f"{{{name}}}")
        made.append(_HOLDER.sub(lambda match: texts[match[1]], word))
    return made


def uses(words: Sequence[str], name: str) -> bool:
    return any(f"{{{name}}}" in word for word in words)


@dataclass
class TemplateEngine(Engine):
    """One launch command per node, all from one template."""

    name: str
    #: Of the template.
    words: list[str]
    agent: list[str]
    #: Node → what `{device}` stands for there.
    members: dict[str, str]
    target: str = ""
    directory: str = ""
    gpus: str = ""
    bring: str = ""

    def open(self) -> None:
        program = self.words[0].removeprefix("\0")
        program = self.agent[0] if program == "agent" else program
        if not _HOLDER.search(program) and not shutil.which(program):
            raise UsageError(f"--engine {self.name}: there is no program {program!r} on PATH")

    def nodes(self) -> list[str]:
        return list(self.members)

    def command(self, node: str) -> list[str]:
        values = {"node": node, "device": self.members[node], "target": self.target, "directory": self.directory}
        many = {"agent": self.agent, "gpus": shlex.split(self.gpus), "ondol": shlex.split(self.bring)}
        return fill(self.words, many, values)

    def arguments(self, node: str) -> list[str]:
        # The node program sees the one device that it was given, whatever its number is outside.
        return ["--ondol-devices=auto"] if self.members[node] and uses(self.words, "device") else []


def members(words: Sequence[str], wished: str, devices: Sequence[str]) -> dict[str, str]:
    """Nodes and their devices: `--nodes a,b,c` or a number of them; one per device where the template names one."""
    if wished and is_number(wished) and not uses(words, "node"):
        names = [f"node{number}" for number in range(1, int(wished) + 1)]
        return dict.fromkeys(names, "")
    names = [name.strip() for name in wished.split(",") if name.strip()]
    if uses(words, "node") and not names:
        raise UsageError("--launch: the template has {node}", hint="say which: --nodes HOST1,HOST2")
    if uses(words, "device"):
        if names:
            raise UsageError("--launch: {device} makes one node per device; leave out --nodes")
        return {f"device{number}": number for number in devices}
    names = names or ["node1"]
    bad = [name for name in names if not _PLAIN.fullmatch(name)]
    if bad or len(set(names)) != len(names):
        raise UsageError(f"--nodes: {bad[0] if bad else wished!r} cannot be the name of a node, or is named twice")
    return dict.fromkeys(names, "")
