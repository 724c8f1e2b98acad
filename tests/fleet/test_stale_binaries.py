"""A binary that was built from other sources, flags or by another compiler is run, or everything is built every time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ondol.testing.built import built, digest
from suites import Suite

pytestmark = pytest.mark.warm_pytest

RUNTIME = """
import os
from pathlib import Path

def log(*words):
    with open(os.environ["LOG"], "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

class Runtime:
    def prepare(self, task):
        source = task.directory / "src"
        def make(path):
            log("build", task.name)
            path.write_text((source / "kernel.c").read_text())
        return task.built(Path("build/kernel.so"), [source, os.environ.get("FLAGS", "-O2")], make)
    def open(self, device, task):
        log("open", task.prepared.read_text())
    def run(self, task):
        log("run", task.prepared.read_text())
"""


@pytest.fixture
def kernels(suite: Suite) -> Suite:
    suite.write(rt=RUNTIME)
    (suite.path / "src").mkdir()
    (suite.path / "src" / "kernel.c").write_text("first")
    tasks = "".join(f'[[task]]\nname = "{name}"\nruntime = "r"\n' for name in "abc")
    (suite.path / "t.ondol.toml").write_text('[runtime.r]\nclass = "rt:Runtime"\n' + tasks)
    return suite


def did(suite: Suite, *flags: str, **variables: str) -> dict[str, int]:
    """What was built, opened and run, with what, how often."""
    suite.log.write_text("")
    suite.variables = variables
    result = suite.pytest(*flags, devices="sim:1")
    assert result.record.counts() == {"passed": 3}, result.output
    lines = [line if not line.startswith("build") else "build" for line in result.log]
    return {line: lines.count(line) for line in lines}


def test_a_spawned_worker_is_told_to_build_anew(kernels: Suite) -> None:
    flags = ("--ondol-start=spawn", "--ondol-rebuild=all")
    assert did(kernels, *flags) == {"build": 3, "open first": 1, "run first": 3}


def test_what_is_run_was_built_from_what_is_there(kernels: Suite) -> None:
    source = kernels.path / "src" / "kernel.c"
    assert did(kernels) == {"build": 1, "open first": 1, "run first": 3}
    assert did(kernels) == {"open first": 1, "run first": 3}, "nothing is built twice"
    os.utime(source)
    assert did(kernels) == {"open first": 1, "run first": 3}, "a new time is no change"
    before = source.stat()
    source.write_text("other")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert did(kernels) == {"build": 1, "open other": 1, "run other": 3}, "an old time does not hide a change"
    assert did(kernels, FLAGS="-O0") == {"build": 1, "open other": 1, "run other": 3}
    assert did(kernels, "--ondol-rebuild=all") == {"build": 3, "open other": 1, "run other": 3}
    source.write_text("first")
    assert did(kernels) == {"open first": 1, "run first": 3}, "and back again"


def test_a_build_that_fails_leaves_nothing_that_could_be_run(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        built(tmp_path / "k.so", ["x"], fails, anew=False)
    assert [path.name for path in tmp_path.iterdir()] == [".k.so.lock"]


def test_a_build_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        built(tmp_path / "k.so", ["x"], lambda _: None, anew=False)


def test_two_who_want_the_same_build_it_once(tmp_path: Path) -> None:
    """The second asks while the first is building, and waits for it."""
    made: list[Path] = []
    asked = threading.Event()
    ends: list[Path] = []

    def second() -> None:
        asked.set()
        ends.append(built(tmp_path / "k.so", ["x"], make, anew=False))

    def make(path: Path) -> None:
        made.append(path)
        if len(made) == 1:
            other.start()
            asked.wait()
        path.write_text("whole")

    other = threading.Thread(target=second)
    ends.append(built(tmp_path / "k.so", ["x"], make, anew=False))
    other.join()
    assert len(made) == 1
    assert len({*ends}) == 1


def test_inputs_are_told_apart(tmp_path: Path) -> None:
    """Moved between files, renamed, added, split differently: all are other inputs. Another checkout is not."""
    seen = set()
    for number, files in enumerate(
        [{"a": "xy", "b": ""}, {"a": "x", "b": "y"}, {"a": "xy"}, {"c": "xy"}, {"d/a": "xy"}, {}]
    ):
        folder = tmp_path / str(number)
        for name, text in {".": "", **files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name != ".":
                path.write_text(text)
        folder.mkdir(exist_ok=True)
        seen.add(digest([folder]))
    texts: list[list[object]] = [["ab"], ["a", "b"], ["", "ab"], [["a", "b"]], [tmp_path / "0" / "a"], ["xy"], []]
    seen |= {digest(one) for one in texts}
    assert len(seen) == 13
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "a").write_text("xy")
    assert digest([copy]) == digest([tmp_path / "2"])


def test_an_open_of_a_device_alone_is_asked_as_before(suite: Suite) -> None:
    suite.write(
        rt="""
        class Runtime:
            def open(self, device, verbose=False): assert verbose is False
            def run(self, task): pass
        """
    )
    (suite.path / "t.ondol.toml").write_text('[runtime.r]\nclass = "rt:Runtime"\n[[task]]\nname = "a"\nruntime = "r"\n')
    assert suite.pytest(devices="sim:1").record.counts() == {"passed": 1}
