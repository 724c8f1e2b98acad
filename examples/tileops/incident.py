"""TileOPs #1615: nightly op tests die of PermissionError in a Triton cache that another container filled.

Real Triton and real torch.compile, real users, real pytest. Without a GPU Triton compiles for one all the same, and
Inductor makes C++.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from showing import CannotShow, Ended, Job, Story, for_everybody, main, need_root  # noqa: E402

ROOT, NIGHTLY, ANOTHER = 0, 1000, 1001
#: What `make .build/tools` installs; first is what this Python has.
TOOLS = sorted(HERE.parent.parent.glob(".build/tools/lib/python3*/site-packages"))
#: Set in the image. Plain C++ is enough for this story and compiles three times as fast.
IMAGE = {"TRITON_DEFAULT_FP_FUSION": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}
IMAGE |= {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
#: With a GPU Inductor makes Triton kernels, and they are in Triton's cache. Without one it has only its own.
MOUNTED = {"triton": "TRITON_CACHE_DIR"}
MOUNTED |= {} if Path("/dev/nvidiactl").exists() else {"inductor": "TORCHINDUCTOR_CACHE_DIR"}
NEEDS = ("torch", "triton", "pytest")
PYTEST = ["-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", "--color=no"]
LOST = "PermissionError: [Errno 13] Permission denied: "


def packages(*names: str) -> list[Path]:
    """The folders in which this Python has these."""
    found = [spec.origin for spec in map(importlib.util.find_spec, names) if spec and spec.origin]
    return [Path(origin).parent.parent for origin in found]


class Nightly:
    """The runner's machine: a checkout, the directory of caches that containers mount, and who runs in them."""

    def __init__(self, place: Path) -> None:
        self.place, self.caches, self.store = place, place / "ci-cache", place / "store"
        self.python, self.path = for_everybody(place, [*packages("ondol", "zstandard", *NEEDS), *TOOLS])
        shutil.copytree(HERE / "ops", place / "ops", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        for folder in (self.caches, *(self.caches / tool for tool in MOUNTED), place / "tmp"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755 if folder == self.caches else 0o1777 if folder.name == "tmp" else 0o777)

    def check(self) -> None:
        script = f"import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, {NEEDS!r})))"
        if not self.job("look", [self.python, "-c", script], NIGHTLY).end().good:
            raise CannotShow(f"needs a Python with {', '.join(NEEDS)} (make .build/tools)")

    def env(self) -> dict[str, str]:
        # Where some images keep the GPU's driver.
        driver = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        return {**IMAGE, **driver, "HOME": "/nonexistent", "TMPDIR": f"{self.place}/tmp", "PYTHONPATH": self.path}

    def job(self, name: str, command: Sequence[str], uid: int, umask: int = 0o022, **env: str) -> Job:
        return Job(name, command, uid=uid, umask=umask, env={**self.env(), **env}, cwd=self.place)

    def tests(self) -> list[str]:
        return [self.python, *PYTEST, "-vv", "--tb=short", "ops"]

    def mounted(self) -> dict[str, str]:
        """Set by the image and by the workflow: one cache for everybody."""
        return {variable: str(self.caches / tool) for tool, variable in MOUNTED.items()}

    def as_before(self, uid: int, umask: int = 0o022) -> Ended:
        return self.job(f"op tests as {uid}", self.tests(), uid, umask, **self.mounted()).end()

    def with_ondol(self, uid: int, *options: str) -> Ended:
        """The one change: a word before the command. The variables stay as the image has set them."""
        words = ["run", "--store", str(self.store), *options, "--", *self.tests()]
        return self.ondol(*words, uid=uid, **self.mounted())

    def ondol(self, *words: str, uid: int = ROOT, **env: str) -> Ended:
        return self.job(f"ondol {words[0]}", [self.python, "-m", "ondol", *words], uid, **env).end()


def account(ended: Ended) -> dict[str, Any]:
    """What became of the tests, and what the tools' own counters say."""
    failed = [line for line in ended.lines(" - ") if line.startswith("FAILED ops/")]
    counted = [line for line in ended.lines("counted: ") if line.startswith("counted: ")]
    return {
        "status": ended.status,
        "passed": len(ended.lines("::test_", " PASSED ")),
        "failed": dict(Counter(re.findall(r"^FAILED ops/(\w+)", "\n".join(failed), re.MULTILINE))),
        "plain": len([line for line in failed if f" - {LOST}" in line and "/tmp.pid_" in line]),
        "wrapped": len([line for line in failed if f"InductorError: {LOST}" in line]),
        "counted": json.loads(counted[0].partition(": ")[2]) if counted else {},
        "seconds": round(ended.seconds, 1),
    }


def before(story: Story, nightly: Nightly) -> None:
    story.heading("Before")
    story.say("Last week a container ran as root, with umask 077, and left its kernels in the mounted caches.")
    first = nightly.as_before(ROOT, umask=0o077)
    story.show(first.lines(" passed"), 1)
    story.say(f"Tonight's container has the same caches and runs as {NIGHTLY}:")
    night = nightly.as_before(NIGHTLY)
    facts = account(night)
    for module, count in facts["failed"].items():
        story.say(f"    {module}: {count} failed")
    story.show(night.lines("E ", LOST)[:1] + night.lines("E ", "InductorError", LOST)[:1])
    story.facts["before"] = {"filled": account(first), **facts}
    look(story, nightly, night)


def look(story: Story, nightly: Nightly, night: Ended) -> None:
    """What a maintainer types the next morning."""
    log = nightly.place / "nightly.log"
    log.write_text(night.output)
    explained = nightly.ondol("explain", str(log))
    story.say("\n$ ondol explain nightly.log")
    story.show(explained.output.splitlines(), 8)
    named = json.loads(nightly.ondol("explain", str(log), "--json").output)["faults"]
    checked = nightly.ondol("doctor", str(nightly.caches / "triton"), uid=NIGHTLY)
    story.say(f"\n$ ondol doctor /ci-cache/triton      # as {NIGHTLY}")
    story.show([line for line in checked.output.splitlines() if line.strip()], 8)
    story.facts["before"]["explained"] = {fault["id"]: len(fault["tests"]) for fault in named}
    story.facts["before"]["doctor"] = checked.status


def after(story: Story, nightly: Nightly) -> None:
    story.heading("After")
    made = nightly.ondol("store", "init", str(nightly.store), "--writers", f"{NIGHTLY}")
    old = nightly.caches / "triton"
    adopted = nightly.ondol("store", "adopt", str(old), "--store", str(nightly.store))
    story.say("$ ondol store adopt /ci-cache/triton --store /ci-cache/ondol      # once, as root")
    story.show(adopted.lines("adopted "), 1)
    story.facts["after"]["setup"] = [made.status, adopted.status]
    for uid, options in ((NIGHTLY, []), (ANOTHER, ["--require-warm"])):
        ended = nightly.with_ondol(uid, *options)
        words = " ".join(["ondol run --store /ci-cache/ondol", *options, "-- pytest ops"])
        story.say(f"$ {words}      # as {uid}")
        story.show([*ended.lines("=== ")[-1:], *ended.lines("counted: "), *ended.lines("ondol: ")], 5)
        story.facts["after"][f"as {uid}"] = account(ended)


def is_gone(facts: dict[str, Any]) -> bool:
    """All tests failed of one cause; then all pass, with what root had compiled, and the next user compiles nothing."""
    was, now = facts["before"], facts["after"]
    filled, first, second = was["filled"], now[f"as {NIGHTLY}"], now[f"as {ANOTHER}"]
    happened = filled["passed"] == sum(was["failed"].values()) == was["plain"] + was["wrapped"] > 0
    good = all(job["status"] == 0 and job["passed"] == filled["passed"] for job in (first, second))
    if not (happened and good and now["setup"] == [0, 0]):
        return False
    counted = [first["counted"]["triton"], *second["counted"].values()]
    return all(tool["compiled"] == 0 < tool["hits"] for tool in counted)


def tell(story: Story, place: Path) -> bool:
    need_root("the tests run as three users")
    nightly = Nightly(place)
    nightly.check()
    before(story, nightly)
    after(story, nightly)
    return is_gone(story.facts)


if __name__ == "__main__":
    sys.exit(main("tileops", __doc__, tell))
