"""What a task's `prepare` returns arrives changed, is unpickled by somebody who should not, or is lost without a word."""

from __future__ import annotations

import os

import pytest

from ondol.fleet.worker import prepared
from suites import Suite

pytestmark = pytest.mark.warm_pytest

RUNTIME = """
import os, pickle
from dataclasses import dataclass

def log(*words):
    with open(os.environ["LOG"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

@dataclass
class Compiled:
    code: bytes
    places: tuple
    def __setstate__(self, state):
        log("unpickled", os.getpid())
        self.__dict__.update(state)

class Stubborn:
    def __setstate__(self, state): raise ValueError("built for another chip")

VALUES = {
    "nothing": None,
    "text": "path",
    "json": {"a": [1, 2.5, True, None, {"b": "c"}]},
    "bytes": b"\\x00\\xff",
    "tuple": (1, (2, 3)),
    "keys": {1: "one", (2, 3): {4}},
    "huge": 1 << 20000,
    "object": Compiled(b"\\x7fELF\\x00", ("a", 1)),
    "nested": {"of": [Compiled(b"", ())]},
    "lambda": lambda: 1,
    "stubborn": Stubborn(),
}

class Runtime:
    def prepare(self, task):
        if task.name == "stubborn": VALUES["stubborn"].x = 1
        return VALUES[task.name]
    def run(self, task):
        log("run", os.getpid())
        assert task.prepared == VALUES[task.name]
        assert type(task.prepared) is type(VALUES[task.name])
"""
GOOD = ("nothing", "text", "json", "bytes", "tuple", "keys", "huge", "object", "nested")


def write(suite: Suite, *names: str) -> None:
    suite.write(rt=RUNTIME)
    tasks = "".join(f'[[task]]\nname = "{name}"\nruntime = "r"\n' for name in names)
    (suite.path / "t.ondol.toml").write_text('[runtime.r]\nclass = "rt:Runtime"\n' + tasks)


def pids(lines: list[str], word: str) -> set[str]:
    return {line.split()[1] for line in lines if line.startswith(word)}


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_everything_that_pickle_takes_arrives_as_it_was(suite: Suite, start: str) -> None:
    write(suite, *GOOD)
    result = suite.pytest(f"--ondol-start={start}", devices="sim:1")
    assert result.verdicts == dict.fromkeys(GOOD, "passed"), result.output
    assert pids(result.log, "unpickled"), "the objects came by pickle"
    assert pids(result.log, "unpickled") <= pids(result.log, "run"), "and nobody but the worker that runs looked inside"


def test_what_is_prepared_on_nodes_is_handed_on(suite: Suite) -> None:
    suite.variables["ONDOL_STORE"] = str(suite.path / "store")
    write(suite, *GOOD)
    result = suite.ondol("--launch=sh -c 'exec {agent}'", "--nodes=2", devices="sim:1")
    assert result.verdicts == dict.fromkeys(GOOD, "passed"), result.output
    assert pids(result.log, "unpickled") <= pids(result.log, "run")


def test_what_cannot_travel_is_an_error_that_names_the_task_and_the_type(suite: Suite) -> None:
    write(suite, "text", "lambda", "stubborn")
    result = suite.pytest(devices="sim:1")
    assert result.verdicts == {"text": "passed", "lambda": "error", "stubborn": "failed"}
    assert "task 'lambda': prepare returned a builtins.function, which cannot be sent" in result.output
    assert "task 'stubborn': what prepare returned (a rt.Stubborn) cannot be unpickled here" in result.output
    assert "built for another chip" in result.output


def test_a_result_too_large_to_send_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "LIMIT", 1000)
    assert prepared.unpack("t", prepared.pack("t", b"x" * 500)) == b"x" * 500
    with pytest.raises(prepared.Unsendable, match=r"task 't'.*more than 1000.*return its path"):
        prepared.pack("t", os.urandom(2000))
    with pytest.raises(prepared.Unsendable, match="return its path"):
        prepared.pack("t", ["x" * 2000])
