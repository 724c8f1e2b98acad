"""The options of a run, once: the plugin prefixes them with `--ondol-`, `ondol test` takes them bare."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ondol.errors import UsageError
from ondol.fleet.verdict import RETRIED_BY_DEFAULT, Cause

#: How a pytest that we start is told what it is for: by `ondol test`, and by an agent that cannot fork its workers.
FRONT_ENV, WORKER_ENV = "ONDOL_FRONT", "ONDOL_WORKER_START"
MARKER = (
    "ondol(devices=1, group='', timeout=None, memory='', isolate=False, runtime=''): what an item needs of its worker"
)


@dataclass(frozen=True)
class Option:
    """One option; `kwargs` are argparse's."""

    name: str
    help: str
    kwargs: dict[str, Any]

    def read(self, text: str) -> Any:
        """Its value out of an ini file."""
        choices = self.kwargs.get("choices")
        if choices and text not in choices:
            raise ArgumentTypeError(f"{text!r} is none of {', '.join(choices)}")
        return text.split() if self.kwargs.get("action") == "append" else self.kwargs.get("type", str)(text)


def _at_least(least: int, kind: type[int] | type[float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number")
        if not value >= least:
            raise ArgumentTypeError(f"{text} is less than {least}")
        return value

    return read


def _number(name: str, default: float, text: str) -> Option:
    kwargs = {"type": _at_least(0, float), "default": default, "metavar": "SECONDS"}
    return Option(name, f"{text} (default: {default:g})", kwargs)


def _count(name: str, default: int, text: str, least: int = 0) -> Option:
    return Option(name, text, {"type": _at_least(least, int), "default": default, "metavar": "N"})


OPTIONS: tuple[Option, ...] = (
    Option("devices", "what to run on: auto, cuda, rocm, xpu, ascend, 0-3,6, cpu:4, sim:2, none", {"metavar": "SPEC"}),
    Option(
        "runtime",
        "run only tasks and items of this runtime; may be repeated",
        {"action": "append", "default": [], "metavar": "NAME"},
    ),
    _count("workers-per-device", 1, "workers on each device (default: 1)", least=1),
    Option(
        "engine",
        "where the nodes come from: local, slurm, ssh:HOST,HOST, docker:IMAGE, podman:IMAGE, apptainer:IMAGE, "
        "enroot:IMAGE, kubectl:POD (default: local)",
        {"default": "local", "metavar": "ENGINE"},
    ),
    Option(
        "launch",
        "an engine of your own: the command that starts {agent} on a node and carries its standard streams; {node}, "
        "{device} and {directory} stand for what they say",
        {"default": "", "metavar": "TEMPLATE"},
    ),
    Option(
        "nodes",
        "for --launch and containers: the names for {node}, or how many (default: 1)",
        {"default": "", "metavar": "NAMES"},
    ),
    Option(
        "slurm",
        "ask for this allocation (arguments of salloc; without it: use the one we are in)",
        {"default": "", "metavar": "ARGUMENTS"},
    ),
    Option(
        "srun",
        "more arguments for the srun of each node, such as --container-image=IMAGE",
        {"default": "", "metavar": "ARGUMENTS"},
    ),
    Option(
        "agent",
        "how Ondol is called on a node: 'python3 /ondol.pyz' … (default: as here; in containers python3 -m ondol)",
        {"default": "", "metavar": "COMMAND"},
    ),
    Option("node-dir", "where the checkout is on the nodes (default: as here)", {"default": "", "metavar": "DIR"}),
    _number("engine-timeout", 3600, "how long to wait for a node; never counts as a test's time; 0 = for ever"),
    _number(
        "engine-silence", 120, "a node, or the agent of this machine, that is not heard for so long is ended; 0 = never"
    ),
    _number("engine-margin", 60, "stop handing out so long before the allocation's time limit"),
    Option(
        "device-env", "one more variable that selects devices", {"action": "append", "default": [], "metavar": "NAME"}
    ),
    _number("timeout", 1800, "deadline of one item, without its teardown; 0 = none"),
    _number("teardown-timeout", 300, "deadline of an item's teardown"),
    _number("startup-timeout", 120, "deadline of a worker's start"),
    _number("collect-timeout", 600, "`ondol test` only: end a collection that makes no progress for so long"),
    _number("silence", 0, "end an item that neither prints nor progresses for so long; 0 = never"),
    _number("session-timeout", 0, "deadline of the whole run: stop, report, exit 124; 0 = none"),
    _number("grace", 3, "seconds between TERM and KILL"),
    _number("reap-timeout", 60, "a killed process that is not gone by then makes its device lost"),
    _number("native-stacks", 5, "time for py-spy or gdb to show native stacks of a hang; 0 = do not ask"),
    _count("retries", 1, "further attempts after a fault of --retry-on (default: 1)"),
    Option(
        "retry-on",
        "causes that are tried again: crashed, device, cache, timeout, failed (default: crashed,device,cache)",
        {"default": ",".join(sorted(c.value for c in RETRIED_BY_DEFAULT)), "metavar": "CAUSES"},
    ),
    Option(
        "judge",
        "judge a failure in a warm worker once more in a fresh one: on, off (default: on)",
        {"choices": ["on", "off"], "default": "on"},
    ),
    Option(
        "flaky",
        "what a flaky item counts as: pass, fail (default: pass)",
        {"choices": ["pass", "fail"], "default": "pass"},
    ),
    Option(
        "isolate",
        "one process per: worker, item (default: worker)",
        {"choices": ["worker", "item"], "default": "worker"},
    ),
    Option(
        "hygiene",
        "what to do about what items leave behind: off, report, recycle, fail (default: report); "
        "an item with a process of its own is looked at only for `fail`",
        {"choices": ["off", "report", "recycle", "fail"], "default": "report"},
    ),
    _count("recycle-after", 0, "replace a worker after so many items; 0 = never"),
    Option("probe", "a command that says whether the device of $ONDOL_DEVICE is healthy", {"metavar": "COMMAND"}),
    _number("probe-timeout", 30, "a health probe that takes longer has failed"),
    Option(
        "start",
        "how workers are made: auto, fork, spawn (default: auto)",
        {"choices": ["auto", "fork", "spawn"], "default": "auto"},
    ),
    Option(
        "device-facts",
        "answer questions about devices from a helper process while tests are collected, so that workers can be "
        "forked: auto (where there are devices), on, off (default: auto)",
        {"choices": ["auto", "on", "off"], "default": "auto"},
    ),
    Option(
        "journal",
        "where the record of the run goes (default: a file in $XDG_STATE_HOME/ondol/journals)",
        {"metavar": "FILE"},
    ),
    Option(
        "rebuild",
        "what `task.built` of a task file builds again: stale (the inputs changed), all (default: stale)",
        {"choices": ["stale", "all"], "default": "stale"},
    ),
    Option("log-dir", "a file for every attempt goes here", {"default": "", "metavar": "DIR"}),
    Option("estimates", "where measured durations are kept (default: pytest's cache)", {"metavar": "FILE"}),
    Option(
        "history",
        "where the journals of past runs are kept, perhaps by many machines (default: $ONDOL_HISTORY, else a directory "
        "in $XDG_STATE_HOME/ondol)",
        {"default": "", "metavar": "DIR"},
    ),
    Option(
        "rerun",
        "run what failed, was not run or was flaky in this run: latest, a journal, a name from `ondol history`",
        {"default": "", "metavar": "RUN"},
    ),
    Option(
        "shard",
        "run the second of five parts: 2/5; balanced by the durations in a shared --history, else by the files' items",
        {"default": "", "metavar": "N/M"},
    ),
    Option("no-known", "do not read ondol-known.toml", {"action": "store_true", "default": False}),
    Option(
        "live",
        "one line per device on a terminal: auto, off (default: auto)",
        {"choices": ["auto", "off"], "default": "auto"},
    ),
)


#: Not in the ini file: what `ondol test` must know before there is a pytest, and what is different in every run.
_TYPED = {"engine", "launch", "nodes", "slurm", "srun", "agent", "node-dir", "collect-timeout", "journal"}
_TYPED |= {"history", "rerun", "shard", "no-known"}
IN_FILE = tuple(option for option in OPTIONS if option.name not in _TYPED)


def destination(option: Option) -> str:
    return "ondol_" + option.name.replace("-", "_")


def parse_causes(text: str) -> frozenset[Cause]:
    known = {c.value: c for c in Cause if c not in {Cause.NONE, Cause.INTERRUPTED}}
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--retry-on: there is no cause {unknown[0]!r}", hint=", ".join(known))
    return frozenset(known[name] for name in names)
