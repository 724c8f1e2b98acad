"""Real torch.compile on the processor: cold once, then warm anywhere and for anybody; what is broken is a miss.

That a hit is a hit is torch's own word, its counters; that no compiler ran, the files. One cold compile takes half a
minute, so the tests share one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from people import ROOT, Job, Program, needs_root

pytestmark = [pytest.mark.real, pytest.mark.warm]

UID = 1000
#: Of nobody: no line in the user database.
NAMELESS = 12345
COMPILED = "compiled.py"
#: Seconds for a dozen C++ compiles on a machine that is busy with other things.
PATIENCE = 400


class Torch:
    """A torch for any user, and a store that the first, cold job has filled."""

    def __init__(self, program: Program, python: str, extra: list[str], place: Path) -> None:
        self.program, self.python, self.place = program, python, place
        self.env = {"PYTHONPATH": os.pathsep.join([*extra, *program.path])}
        self.store = place / "store"
        assert program.ondol("store", "init", str(self.store), "--writers", str(UID)).returncode == 0
        #: What the cold job's cache was like, before its room was removed.
        self.raw = place / "raw"
        keep = f'{python} {program.programs / COMPILED} && cp -r "$TORCHINDUCTOR_CACHE_DIR" {self.raw}'
        self.cold = self.job("sh", "-c", keep)

    def job(self, *command: str, options: tuple[str, ...] = (), uid: int | None = None, **env: str) -> Job:
        arguments = ["run", "--store", str(self.store), *options, "--", *command]
        return Job(self.program.ondol(*arguments, uid=uid, env={**self.env, **env}, timeout=PATIENCE))

    def compiled(self, where: Path, *arguments: str, uid: int | None = None, options: tuple[str, ...] = ()) -> Job:
        """The function in a checkout of its own."""
        where.mkdir()
        shutil.copy(self.program.programs / COMPILED, where)
        return self.job(self.python, str(where / COMPILED), *arguments, options=options, uid=uid)


@pytest.fixture(scope="module")
def torch(program: Program, public: Path) -> Torch:
    tools = ROOT / ".build" / "tools"
    assert tools.is_dir(), "make test installs it; for pytest alone: make .build/tools"
    python, extra = str(tools / "bin" / "python"), []
    if os.geteuid() == 0 and not program.works_for_others(python):  # a checkout in somebody's home
        packages = next((tools / "lib").glob("python3*/site-packages"))
        subprocess.run(["cp", "-rL", "--link", packages, public / "tools"], check=True)
        python, extra = program.python, [str(public / "tools")]
    place = public / "inductor"
    place.mkdir()
    return Torch(program, python, extra, place)


def test_cold_job_publishes_what_it_made(torch: Torch) -> None:
    said = torch.cold.said
    assert torch.cold.status == 0, torch.cold
    assert (said["hits"], said["compiled"], said["traced"], said["right"]) == (0, 1, 1, True), torch.cold
    assert said["built"] >= 2  # a kernel, its header, and probes of the processor
    listed = json.loads(torch.program.ondol("store", "ls", "--store", str(torch.store), "--json").stdout)["entries"]
    assert len(listed) == 2 + said["built"]
    assert {entry["tool"] for entry in listed} == {"inductor"}
    assert [entry["fingerprint"] for entry in listed].count("any") == 1  # what was traced is for any processor


@needs_root
@pytest.mark.root
def test_another_user_at_another_path_does_not_compile_again(torch: Torch) -> None:
    """Every graph hits and no compiler is started, not even for the header that torch keeps outside of its cache."""
    job = torch.compiled(torch.place / "checkout", uid=UID, options=("--require-warm",))
    assert job.status == 0, job
    assert (job.hits, job.compiled, job.said["traced"], job.said["built"]) == (1, 0, 0, 0), job
    assert job.said["right"]
    assert job.warnings == []
    assert ", 0 new" in job.stderr
    assert "of compiling saved" in job.stderr


@needs_root
@pytest.mark.root
def test_user_without_a_name_compiles_only_what_is_new(torch: Torch) -> None:
    """What is new needs one kernel; its header comes from the store, made by another user in another room."""
    job = torch.compiled(torch.place / "nameless", "cpu", "more", uid=NAMELESS, options=("--publish", "never"))
    assert job.status == 0, job
    assert (job.hits, job.compiled, job.said["traced"], job.said["built"]) == (1, 1, 1, 1), job
    assert job.said["right"]
    assert job.warnings == []


@needs_root
@pytest.mark.root
def test_another_user_of_a_shared_directory_dies_without_ondol(torch: Torch) -> None:
    """The fault: complete, readable, and of no use, because a hit opens its lock for writing."""
    tmp = torch.place / "tmp"
    tmp.mkdir(mode=0o777)
    tmp.chmod(0o777)
    env = {**torch.env, "TORCHINDUCTOR_CACHE_DIR": str(torch.raw), "TMPDIR": str(tmp)}
    plain = torch.program.run([torch.python, str(torch.program.programs / COMPILED)], uid=UID, env=env)
    assert plain.returncode == 1
    assert "PermissionError: [Errno 13] Permission denied" in plain.stderr
    assert f"{torch.raw}/locks/" in plain.stderr


def test_damaged_entries_fail_no_job(torch: Torch) -> None:
    """Truncated, emptied, one for another: misses, and none of it reaches torch, whom a cut library would kill.

    All but the largest one, the header, which alone takes as long to compile as the rest: it is used.
    """
    packs = sorted(torch.store.rglob("*.pack"), key=lambda pack: pack.stat().st_size)[:-1]
    whole = [pack.read_bytes() for pack in packs]
    for number, pack in enumerate(packs):
        pack.write_bytes((whole[number][: len(whole[number]) // 2], b"", whole[number - 1])[number % 3])
    job = torch.compiled(torch.place / "after-damage")
    assert job.status == 0, job
    assert (job.hits, job.compiled, job.said["built"]) == (0, 1, torch.cold.said["built"] - 1), job
    assert job.said["right"]
    assert f"{len(packs)} bad inductor pack(s)" in job.stderr
    assert "1 filled" in job.stderr
    assert torch.program.ondol("store", "verify", "--store", str(torch.store)).returncode == 0  # made anew
