"""One Triton cache, mounted writable into every container of every Slurm job; then the same jobs with Ondol.

Real: Slurm with three nodes (Debian's, fake GPUs), Triton with its own count of hits, bind mounts in namespaces, and
`before.sbatch` and `after.sbatch` as they are, with the site's paths moved under a directory of this script's own.
Not real: GPUs (Triton compiles for an H100 without one), and images.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests" / "slurm")]

import showing  # noqa: E402
from cluster import Cluster, wait_for, why_not  # noqa: E402

#: Two small kernels: enough to prove it.
KERNELS = 2
PROGRAM = HERE.parent / "demo" / "kernels.py"
RANKS = 2
#: The ranks of a job meet first, as MPI's do.
STAGE = f""": > "$MEET/$$"; until [ "$(ls "$MEET" | wc -l)" -ge 2 ]; do sleep 0.05; done
echo "room $ONDOL_ROOM, Slurm: ${{SLURM_JOB_ID:-unset}}"; python '{PROGRAM}' 1"""
#: The site's own places, in the containers and outside.
PLACES = re.compile(r"(?<!\w)/(?:home/svc_ci|scratch|scripts|root|store)\b")
#: A clean-up has to meet a compilation half-way; it does at once, nearly always.
ROUNDS = 3


class Ended(showing.Ended):
    """A Slurm job that is over; what its ranks said, perhaps two of them in one line."""

    @property
    def ranks(self) -> list[dict[str, int]]:
        return [json.loads(text) for text in re.findall(r'{"compiled".*?}', self.output)]

    def total(self, name: str) -> int:
        return sum(rank[name] for rank in self.ranks)

    @property
    def rooms(self) -> set[str]:
        return set(re.findall(r"room (/\S+),", self.output))

    @property
    def error(self) -> str:
        """The last line of the first traceback."""
        found = re.search(r"^(\w+(?:\.\w+)*(?:Error|Exception): .*)$", self.output, re.MULTILINE)
        return found[1] if found else ""


class Site:
    """A Slurm cluster, a service account's home, a scratch file system, and containers that see some of it."""

    def __init__(self, place: Path, cluster: Cluster) -> None:
        self.place, self.cluster = place, cluster
        self.cache = place / "home" / "svc_ci" / ".triton" / "cache"
        self.store = place / "scratch" / "ondol"
        for folder in ("root/.triton", "scripts", "store", "scratch/scripts", "scratch/out", "bin"):
            (place / folder).mkdir(parents=True)
        self.cache.mkdir(parents=True)
        shutil.copy(HERE / "stage.sh", place / "scratch" / "scripts")
        self._program("srun", f'exec {sys.executable} {HERE / "pyxis_here.py"} "$@"')
        self._program("ondol", f'exec {sys.executable} -m ondol "$@"')
        self._program("python", f'exec {sys.executable} "$@"')
        search = f"{place / 'bin'}:{cluster.environment['PATH']}"
        self.env = {
            **cluster.environment,
            "PATH": search,
            "REAL_SRUN": shutil.which("srun", path=cluster.environment["PATH"]) or "srun",
            "CONTAINER_HOME": str(place / "root"),
            "HOST_ONLY": f"{place / 'home'}:{place / 'scratch'}",
            "IMAGE": "none",
            "STAGE_COMMAND": STAGE,
            "TRITON_DEFAULT_FP_FUSION": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def _program(self, name: str, line: str) -> None:
        path = self.place / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def script(self, name: str) -> str:
        return PLACES.sub(lambda found: f"{self.place}{found[0]}", (HERE / name).read_text())

    def submit(self, name: str, script: str, **env: str) -> int:
        file = self.place / "scratch" / "scripts" / f"{name}.sbatch"
        file.write_text(script)
        command = ["sbatch", "--parsable", f"--output={self.output(name)}", f"--chdir={self.place}", str(file)]
        meet = self.place / "meet" / name
        meet.mkdir(parents=True)
        done = subprocess.run(
            command, env={**self.env, "MEET": str(meet), **env}, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    def output(self, name: str) -> Path:
        return self.place / "scratch" / "out" / f"{name}.txt"

    def end(self, jobs: dict[str, int]) -> list[Ended]:
        if not wait_for(lambda: not self.cluster.jobs(), showing.LIMIT, pause=0.25):
            raise RuntimeError("Slurm jobs that do not end:\n" + self.cluster.logs())
        return [self._ended(name, number) for name, number in jobs.items()]

    def _ended(self, name: str, number: int) -> Ended:
        shown = self.cluster.run("scontrol", "-o", "show", "job", str(number))
        state = dict(word.partition("=")[::2] for word in shown.split())
        # Shown as the site would see it.
        output = self.output(name).read_text().replace(str(self.place), "")
        return Ended(name, int(state["JobState"] != "COMPLETED"), output, 0.0)

    def run(self, script: str, *names: str, **env: str) -> list[Ended]:
        """Jobs at once, until the last is over."""
        return self.end({name: self.submit(name, script, **env) for name in names})

    def empty(self, folder: Path) -> None:
        """What a clean-up does, whoever may be using it. Triton itself removes a cache that it finds empty."""
        with suppress(FileNotFoundError):
            for path in folder.iterdir():
                shutil.rmtree(path, ignore_errors=True)


# -- before --------------------------------------------------------------------------------------------------------


def cleaned_while_in_use(story: showing.Story, site: Site) -> dict[str, object]:
    """Somebody makes room in the service account's home while three jobs compile."""

    def clean_until_they_are_over() -> bool:
        # Again and again before Slurm is asked, which takes its time: they compile for a few seconds only.
        wait_for(lambda: site.empty(site.cache), 1.0)
        return not site.cluster.jobs()

    failed: list[Ended] = []
    for number in range(1, ROUNDS + 1):
        jobs = {name: site.submit(name, site.script("before.sbatch")) for name in _names(f"clean-{number}", 3)}
        wait_for(clean_until_they_are_over, showing.LIMIT, pause=0.1)
        failed = [job for job in site.end(jobs) if not job.good]
        if any("FileNotFoundError" in job.error for job in failed):
            break
    story.say(f"Three jobs at once, and a clean-up of the home while they compile: {len(failed)} of 3 failed.")
    story.show([job.error for job in failed])
    return {"jobs": 3, "failed": len(failed), "errors": [job.error for job in failed], "rounds": number}


def torn_entry(story: showing.Story, site: Site) -> dict[str, object]:
    """A node loses power just after Triton renamed a file whose content was not on the disk yet."""
    site.empty(site.cache)
    (alone,) = site.run(site.script("before.sbatch"), "alone")
    torn = next(path for path in sorted(site.cache.glob("*/*.json")) if not path.name.startswith("__grp__"))
    torn.write_bytes(b"")
    later = site.run(site.script("before.sbatch"), *_names("torn", 2))
    failed = [job for job in later if not job.good]
    story.say(f"One job alone: {'passed' if alone.good else 'failed'}. Then a node loses power, and one file is empty:")
    story.say(f"{len(failed)} of 2 later jobs failed, and so will all others until somebody finds that file.")
    story.show([job.error for job in failed])
    return {"alone": alone.good, "jobs": 2, "failed": len(failed), "errors": [job.error for job in failed]}


def read_only_mount(story: showing.Story, site: Site) -> dict[str, object]:
    """What the review advised: fill it once, outside, and mount it `:ro`."""
    site.empty(site.cache)
    command = [sys.executable, str(PROGRAM), "1"]
    variables = {"TRITON_CACHE_DIR": str(site.cache), "TRITON_DEFAULT_FP_FUSION": "1"}
    filled = showing.Job("fill", command, env=variables).end()
    script = site.script("before.sbatch").replace("/root/.triton", "/root/.triton:ro")
    (job,) = site.run(script, "read-only")
    story.say(f"Filled outside with all {KERNELS} kernels and mounted `:ro`: the job {_ended_how(job)}. Triton keeps")
    story.say("absolute paths, finds nothing at the container's path, compiles, and may not write.")
    story.show([job.error])
    return {"filled": filled.good, "jobs": 1, "failed": int(not job.good), "errors": [job.error]}


# -- after ---------------------------------------------------------------------------------------------------------


def post_merge(story: showing.Story, site: Site) -> dict[str, object]:
    """The one job that may write: its mount says `rw`."""
    subprocess.run([*showing.ONDOL, "store", "init", str(site.store)], check=True, capture_output=True)
    (job,) = site.run(site.script("after.sbatch"), "post-merge", STORE_MODE="rw")
    packs = len(_packs(site.store))
    story.say(f"Post-merge job, store `rw`: {_ended_how(job)}, {job.total('compiled')} compiled, {packs} published.")
    story.show(job.lines("ondol: "))
    return {**_counts([job]), "published": packs}


def pre_merge(story: showing.Story, site: Site) -> dict[str, object]:
    """Three at once; one of them where the site has unset Slurm's variables before Ondol starts."""
    script = site.script("after.sbatch")
    unset = "env -u SLURM_JOB_ID -u SLURM_STEP_ID -u SLURM_LOCALID -u SLURM_STEP_TASKS_PER_NODE ondol run"
    bare = script.replace("ondol run", f'{unset} --share "stage-$SLURM_JOB_ID"')
    stage = f"{STAGE}; touch {site.place}/store/mine || true"
    jobs = {name: site.submit(name, script, STAGE_COMMAND=stage) for name in _names("pre-merge", 2)}
    jobs["no-slurm-variables"] = site.submit("no-slurm-variables", bare, STAGE_COMMAND=stage)
    ended = site.end(jobs)
    for job in ended:
        hits = f"{job.total('hits')} hits, {job.total('compiled')} compiled"
        story.say(f"{job.name}, store `ro`: {_ended_how(job)}, {RANKS} ranks in {len(job.rooms)} room, {hits}.")
    story.show(ended[0].lines("ondol: "))
    refused = sum(len(re.findall("cannot touch .*?Read-only file system", job.output)) for job in ended)
    rooms = len({room for job in ended for room in job.rooms})
    return {**_counts(ended), "rooms": rooms, "writes_refused": refused}


def everything_at_once(story: showing.Story, site: Site) -> dict[str, object]:
    """The store gets what the cache got: a pack is torn, and it is all removed while jobs use it."""
    pack = _packs(site.store)[0]
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])
    names = _names("trouble", 3)
    jobs = {name: site.submit(name, site.script("after.sbatch")) for name in names}
    begun = wait_for(lambda: all("room /" in _text(site.output(name)) for name in names), 120)
    site.empty(site.store)
    ended = site.end(jobs)
    good = sum(job.good for job in ended)
    story.say(f"A pack torn in half, and the store removed while three jobs run on it: {good} of 3 passed.")
    story.show(ended[0].lines("ondol: "))
    return {**_counts(ended), "begun": begun}


# -- the whole -----------------------------------------------------------------------------------------------------


def tell(story: showing.Story, place: Path) -> bool:
    if why := why_not() or _no_jobs_here():
        raise showing.CannotShow(why)
    cluster = Cluster(place / "slurm")
    try:
        site = Site(place, cluster)
        story.say(f"Slurm with {len(cluster.nodes)} nodes, {RANKS} ranks per job, {KERNELS} Triton kernels per rank.")
        story.heading("Before: the service account's .triton in every container")
        before = story.facts["before"]
        before["cleaned"] = cleaned_while_in_use(story, site)
        before["torn"] = torn_entry(story, site)
        before["read_only"] = read_only_mount(story, site)
        story.heading("After: a store that jobs only read, and a room for each")
        after = story.facts["after"]
        after["post_merge"] = post_merge(story, site)
        if not after["post_merge"]["published"]:
            return False
        after["pre_merge"] = pre_merge(story, site)
        after["trouble"] = everything_at_once(story, site)
    finally:
        cluster.close()
    return happened(before) and gone(after)


def happened(before: dict[str, dict[str, object]]) -> bool:
    said = {name: " ".join(part["errors"]) for name, part in before.items()}  # type: ignore[call-overload]
    return (
        "FileNotFoundError" in said["cleaned"]
        and bool(before["torn"]["alone"] and before["torn"]["failed"] == before["torn"]["jobs"])
        and "JSONDecodeError" in said["torn"]
        and "Read-only file system" in said["read_only"]
    )


def gone(after: dict[str, dict[str, object]]) -> bool:
    first, warm, trouble = after["post_merge"], after["pre_merge"], after["trouble"]
    return (
        all(part["failed"] == 0 for part in after.values())
        and first["published"] == KERNELS
        and (warm["hits"], warm["compiled"]) == (3 * RANKS * KERNELS, 0)
        and warm["rooms"] == 3
        and warm["writes_refused"] == 3 * RANKS
        and trouble["begun"] is True
    )


def _no_jobs_here() -> str:
    """Why the jobs could not run on a cluster that can be started; empty when they can."""
    if not importlib.util.find_spec("triton"):
        return "Triton is not installed here (make .venv/.dev)"
    allowed = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    return "" if allowed else "root may not mount anything here"


def _names(name: str, many: int) -> list[str]:
    return [f"{name}-{number}" for number in range(1, many + 1)]


def _ended_how(job: Ended) -> str:
    return "passed" if job.good else "FAILED"


def _counts(jobs: list[Ended]) -> dict[str, object]:
    totals = {name: sum(job.total(name) for job in jobs) for name in ("hits", "compiled")}
    return {"jobs": len(jobs), "failed": sum(not job.good for job in jobs), **totals}


def _packs(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.is_file() and path.suffix == ".pack")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(showing.main("tensorrt-llm", __doc__ or "", tell))
