"""MFC #1630: nine matrix legs install into one uv cache on one node, and an entry that lost a file fails them for ever.

Real uv, real processes; the packages are tiny and come from an index on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(ROOT / "tests")]

from showing import ONDOL, CannotShow, Ended, Job, Story, main, together  # noqa: E402

import wheelhouse  # noqa: E402

LEGS = tuple(f"{device} {shard}/3" for device in ("acc", "omp", "cpu") for shard in "123")
#: What is left of TMPDIR for some of them: the scratch directory of a job that is over, and a file.
STALE, A_FILE = ("acc 1/3", "omp 1/3", "cpu 1/3"), ("cpu 3/3",)
PACKAGES = ("cantera", "fypp", "matplotlib", "numpy", "pandas", "rich", "scipy", "typer")
NO_METADATA, NO_DIST_INFO = "pandas", "scipy"
INSTALLED = "Toolchain installed"
#: How uv puts it.
SIGNS = {NO_METADATA: ".dist-info/METADATA", NO_DIST_INFO: "Missing .dist-info directory"}


class Node:
    """A login node: one user, one uv cache, an index; and a checkout for each leg."""

    def __init__(self, place: Path, index: str, served: list[str]) -> None:
        self.place, self.index, self.served = place, index, served
        self.cache = place / "uv-cache"
        for folder in ("bin", "home", "tmp"):
            (place / folder).mkdir()
        (place / "a-file").touch()
        (place / "bin" / "uv").symlink_to(find_uv())
        command = " ".join(ONDOL)
        (place / "bin" / "ondol").write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (place / "bin" / "ondol").chmod(0o755)

    def leg(self, name: str, script: str) -> Job:
        checkout = self.place / name.replace("/", "-of-")
        shutil.rmtree(checkout, ignore_errors=True)
        (checkout / "toolchain").mkdir(parents=True)
        (checkout / "toolchain" / "requirements.txt").write_text("\n".join(PACKAGES) + "\n")
        shutil.copy(HERE / script, checkout / "toolchain" / "bootstrap.sh")
        tmp = "gone" if name in STALE else "a-file" if name in A_FILE else "tmp"
        env = {"PATH": f"{self.place}/bin:{os.environ['PATH']}", "HOME": f"{self.place}/home", "USER": "ci"}
        env |= {"TMPDIR": str(self.place / tmp), "UV_CACHE_DIR": str(self.cache), "UV_DEFAULT_INDEX": self.index}
        env |= {"UV_PYTHON": os.path.realpath(sys.executable), "UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy"}
        return Job(name, ["bash", "toolchain/bootstrap.sh"], env=env, cwd=checkout)

    def legs(self, script: str) -> dict[str, Any]:
        """All nine at once, and what became of them."""
        self.served.clear()
        return self.account(together([self.leg(name, script) for name in LEGS]))

    def account(self, ended: list[Ended]) -> dict[str, Any]:
        logs = [one.output for one in ended]
        wheels = [path.rpartition("/")[2].partition("-")[0] for path in self.served if path.endswith(".whl")]
        return {
            "installed": sum(one.good and INSTALLED in one.output and self.works(one.name) for one in ended),
            "signs": {package: sum(sign in log for log in logs) for package, sign in SIGNS.items()},
            "never_tried": [one.name for one in ended if one.lines("flock: ")],
            "cleaned": sum(bool(one.lines("Removed ", "files")) for one in ended),
            "healed_by": [one.name for one in ended if one.lines("ondol: set aside: ")],
            "set_aside": sorted(package for one in ended for package in set_aside(one)),
            "fetched": sorted(wheels),
            "logs": {one.name: one.output.splitlines() for one in ended},
        }

    def works(self, leg: str) -> bool:
        """Whether what a leg installed can be imported whole."""
        script = "; ".join(f"import {name}; assert {name}.VALUE == {name!r}" for name in PACKAGES)
        python = self.place / leg.replace("/", "-of-") / "build" / "venv" / "bin" / "python"
        return subprocess.run([python, "-I", "-B", "-c", script], capture_output=True, check=False).returncode == 0

    def archives(self, package: str) -> list[Path]:
        """The unpacked wheel, wherever uv put it."""
        return [link.resolve() for link in self.cache.glob(f"wheels-v*/index/*/{package}/*-py3-none-any")]

    def lose_metadata(self) -> None:
        for archive in self.archives(NO_METADATA):
            (archive / f"{NO_METADATA}-1.0.dist-info" / "METADATA").unlink()

    def lose_dist_info(self) -> None:
        for archive in self.archives(NO_DIST_INFO):
            shutil.rmtree(archive / f"{NO_DIST_INFO}-1.0.dist-info")

    def damaged(self, good: Path, *damages: Callable[[], None]) -> None:
        """A copy of the good cache, as it was before, with this damage."""
        subprocess.run(["rm", "-rf", self.cache], check=True)
        subprocess.run(["cp", "-a", good, self.cache], check=True)
        for damage in damages:
            damage()

    def entries(self, packages: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Every file of these, with inode and time: an entry that was made again has others."""
        paths = [path for package in packages for archive in self.archives(package) for path in archive.rglob("*")]
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def set_aside(ended: Ended) -> list[str]:
    """`ondol: set aside: archive-v0/…: METADATA is missing (pandas-1.0)`"""
    named = [line.rpartition("(")[2].rstrip(")") for line in ended.lines("ondol: set aside: ")]
    return [name.partition("-")[0] for name in named]


def find_uv() -> str:
    built = ROOT / ".build" / "uv" / "bin" / "uv"
    found = str(built) if built.exists() else shutil.which("uv")
    if not found:
        raise CannotShow("uv is not here (make .build/uv)")
    return found


def before(story: Story, node: Node, good: Path) -> dict[str, Any]:
    told: dict[str, Any] = {}
    story.heading("Before")
    for package, damage in ((NO_METADATA, node.lose_metadata), (NO_DIST_INFO, node.lose_dist_info)):
        node.damaged(good, damage)
        waves = [node.legs("before.sh"), node.legs("before.sh")]
        told[package] = [keep(wave) for wave in waves]
        installed = " and ".join(f"{wave['installed']} of 9" for wave in waves)
        story.say(f"{package} lost a part of its entry. Legs that installed it, in two runs: {installed}.")
        story.show([line for line in waves[0]["logs"][LEGS[1]] if SIGNS[package] in line], 1)
    node.damaged(good, node.lose_metadata, node.lose_dist_info)
    locked = node.legs("flock.sh")
    told["flock"] = keep(locked)
    story.say(f"\nWith a lock in TMPDIR: {locked['installed']} of 9. Some did not even start uv:")
    story.show([line for leg in (*STALE[:1], *A_FILE) for line in locked["logs"][leg] if "flock: " in line])
    node.damaged(good, node.lose_metadata, node.lose_dist_info)
    cleaned = node.legs("clean.sh")
    told["clean"] = keep(cleaned)
    story.say(f"\nWith a better lock, and `uv cache clean` after a failure: {cleaned['installed']} of 9.")
    story.say(f"Times the cache was emptied: {cleaned['cleaned']}. Wheels fetched again: {len(cleaned['fetched'])}.")
    return told


def after(story: Story, node: Node, good: Path, script: str) -> dict[str, Any]:
    story.heading("After")
    node.damaged(good, node.lose_metadata, node.lose_dist_info)
    healthy = node.entries(set(PACKAGES) - set(SIGNS))
    first, second = node.legs(script), node.legs(script)
    kept = node.entries(set(PACKAGES) - set(SIGNS)) == healthy
    story.say(f"`ondol guard -- uv pip install …`: {first['installed']} of 9 legs, the same TMPDIRs, both entries bad.")
    for leg in first["healed_by"]:
        story.say(f"{leg}:")
        story.show([line for line in first["logs"][leg] if line.startswith("ondol: ")], 8)
    story.say(f"Fetched again: {', '.join(first['fetched'])}; everything else stayed as it was: {kept}.")
    again = f"{len(second['fetched'])} wheels fetched, {len(second['set_aside'])} entries set aside"
    story.say(f"The next nine: {second['installed']} of 9, {again}.")
    return {"first": keep(first), "second": keep(second), "other_entries_untouched": kept}


def keep(wave: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wave.items() if name != "logs"}


def is_gone(facts: dict[str, Any]) -> bool:
    was, now = facts["before"], facts["after"]
    for_ever = all(
        wave["installed"] == 0 and wave["signs"][package] == len(LEGS) for package in SIGNS for wave in was[package]
    )
    no_remedy = was["flock"]["installed"] == 0 and set(was["flock"]["never_tried"]) == {*STALE, *A_FILE}
    first, second = now["first"], now["second"]
    good = first["installed"] == second["installed"] == len(LEGS)
    healed_once = len(first["healed_by"]) == 1 and first["set_aside"] == sorted(SIGNS)
    warm = first["fetched"] == sorted(SIGNS) and now["other_entries_untouched"]
    return for_ever and no_remedy and good and healed_once and warm and second["fetched"] == second["set_aside"] == []


def tell(story: Story, place: Path, script: str = "after.sh") -> bool:
    wheelhouse.make_index(place / "index", PACKAGES)
    served: list[str] = []
    with wheelhouse.serving(place / "index", served) as index:
        node = Node(place, index, served)
        filled = node.leg(LEGS[1], "before.sh").end()
        if not filled.good:
            raise CannotShow(f"uv cannot install here at all: {filled.output}")
        good = place / "good-cache"
        node.cache.rename(good)
        story.facts["before"] = before(story, node, good)
        story.facts["after"] = after(story, node, good, script)
    return is_gone(story.facts)


if __name__ == "__main__":
    sys.exit(main("mfc", __doc__, tell))
