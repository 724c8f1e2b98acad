"""`ondol test` in real containers: an image with Python and pytest, Ondol as one file, other users, no network."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.fleet.record import load
from ondol.host import proctree
from people import ROOT, Program, needs_root
from suites import Result, Suite, journal_lines
from walls import bare_tree
from walls.podman import Podman

pytestmark = [needs_root, pytest.mark.root, pytest.mark.real]

IMAGE = "ondol-bare"


@pytest.fixture(scope="module")
def podman(public: Path) -> Iterator[Podman]:
    tree, state = public / "node-image", public / "node-podman"
    state.mkdir()
    python = bare_tree.build(tree)
    bare_tree.add_pytest(tree / "usr" / "lib" / "python3" / "dist-packages")
    made = Podman(state, tree)
    if why := made.why_not(python):
        pytest.skip(why)
    made.image(IMAGE, python)
    yield made
    made.ask("rm", "--all", "--force")
    shutil.rmtree(tree, ignore_errors=True)
    shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def suite(place: Path, podman: Podman) -> Iterator[Suite]:
    (place / "suite").mkdir(mode=0o755)
    made = Suite(place / "suite")
    made.variables = {**podman.environment, "ONDOL_STORE": str(place / "store")}
    yield made
    made.end()


def start(suite: Suite, pyz: Path, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    """From the one file, which then also goes into the container."""
    journal = suite.path / "journal.jsonl"
    command = [sys.executable, str(pyz), "test", f"--journal={journal}", "--native-stacks=0", *arguments]
    return suite.start(command), journal


def end_of(suite: Suite, started: tuple[subprocess.Popen[str], Path]) -> Result:
    process, journal = started
    output, _ = process.communicate(timeout=suite.patience)
    return Result(process.returncode, output, journal=journal)


def test_image_with_python_and_pytest_alone_runs_no_suite(suite: Suite, pyz: Path, podman: Podman) -> None:
    """By the preset: the checkout and our one file are mounted, and nothing is installed there."""
    suite.write(
        test_a="""
        import importlib.metadata, os, socket, pytest
        @pytest.mark.parametrize("n", range(4))
        def test_n(n, device):
            assert os.path.exists("/run/.containerenv")
            assert [name for _, name in socket.if_nameindex()] == ["lo"]
            assert "ondol" not in {found.name for found in importlib.metadata.distributions()}
        """
    )
    result = end_of(suite, start(suite, pyz, f"--engine=podman:{IMAGE}", "--devices=cpu:2"))
    assert (result.status, result.record.counts()) == (0, {"passed": 4}), result.output
    assert {item.attempts[-1].device[:6] for item in result.record.items} == {"node1/"}
    assert podman.ask("ps", "--all", "--quiet") == ""


KERNEL = """
import errno, json, os, pathlib, subprocess, sys
import pytest
def test_kernel(tmp_path):
    uid, hits = os.environ["EXPECTED"].split()
    done = subprocess.run([sys.executable, "standin.py", "warm"], capture_output=True, text=True, check=True)
    assert (os.getuid(), json.loads(done.stdout)["hits"]) == (int(uid), int(hits)), done.stdout
    for path in ("/store/x", "x"):
        with pytest.raises(OSError) as caught:
            pathlib.Path(path).touch()
        assert caught.value.errno in (errno.EROFS, errno.EACCES)
"""
MAPPED = "--uidmap 0:100000:65536 --gidmap 0:100000:65536"


@pytest.mark.parametrize(
    ("user", "expected"),
    [("--user 1000:1000", "1000 1"), ("--user 4321:0", "4321 1"), (f"{MAPPED} --user 7:7", "7 0")],
    ids=["uid 1000", "uid without a name", "mapped users"],
)
def test_other_user_in_a_container_is_warm_where_it_can_be_trusted(
    suite: Suite, pyz: Path, program: Program, shared_store: Path, user: str, expected: str
) -> None:
    """Checkout, store and program are read-only there. Where users are mapped nobody can be trusted: cold, and said."""
    program.job(shared_store, "warm")
    shutil.copy(ROOT / "tests" / "programs" / "standin.py", suite.path)
    suite.write(test_k=KERNEL)
    mounts = f"-v {suite.path}:/w:ro -v {shared_store}:/store:ro -v {shlex.quote(str(pyz))}:/ondol.pyz:ro"
    template = f"podman run -i --rm --network none {user} {mounts} -w /w -e 'EXPECTED={expected}' {IMAGE} {{agent}}"
    where = ["--node-dir=/w", "--agent=python3 /ondol.pyz", "--store=/store", "--publish=never", "--tools=triton"]
    result = end_of(suite, start(suite, pyz, f"--launch={template}", *where, "--devices=cpu:1"))
    assert result.verdicts == {"test_kernel": "passed"}, result.output
    assert ("1 filled, 1 used" in result.output) == expected.endswith("1"), result.output


WAITING = """
import pathlib, time, pytest
@pytest.mark.parametrize("n", range(6))
def test_n(n):
    deadline = time.monotonic() + 60
    while not pathlib.Path("go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
"""


@pytest.mark.fault
@pytest.mark.parametrize("how", ["stop", "kill", "client"])
def test_whichever_way_a_container_goes_every_item_gets_a_verdict(
    suite: Suite, pyz: Path, podman: Podman, how: str
) -> None:
    """Asked to end: what runs may end. Killed, or its podman killed: that costs an attempt, and no container runs on."""
    suite.write(test_a=WAITING)
    process, journal = start(suite, pyz, f"--engine=podman:{IMAGE}", "--nodes=2", "--devices=cpu:1")

    def events(*kinds: str) -> list[str]:
        return [e["node"] for e in journal_lines(journal) if e["e"] in kinds] if journal.exists() else []

    assert suite.wait_for(lambda: journal.exists() and sum(e["e"] == "start" for e in journal_lines(journal)) == 2)
    victim = podman.ask("ps", "--quiet").split()[0]
    if how == "client":
        client = next(p for p in proctree.descendants(process.pid) if "podman run" in proctree.describe(p))
        os.kill(client, signal.SIGKILL)
    else:
        stopping = suite.start(["podman", how, *(["--time=60"] if how == "stop" else []), victim])
    assert suite.wait_for(lambda: events("node-lost", "node-notice"))
    (suite.path / "go").touch()
    result = end_of(suite, (process, journal))
    assert (result.status, load(journal).counts()) == (0, {"passed": 6}), result.output
    flaky = sum(item.flaky for item in load(journal).items)
    assert (len(events("node-notice")), flaky) == ((1, 0) if how == "stop" else (0, 1)), result.output
    if how != "client":
        assert stopping.wait(timeout=60) == 0
    # Running ones: a podman that is asked to end between creating and starting leaves a container that never ran.
    assert suite.wait_for(lambda: podman.ask("ps", "--quiet") == ""), podman.ask("ps")
