"""`ondol.pyz` where there is nothing but a Python: no pip, no network, no HOME, no passwd entry, as root and not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ondol.host import fixed_place
from ondol.store import marker
from people import ROOT, needs_root
from walls import bare_tree, one_file
from walls.rooms import titles

#: As containers have it: no virtual environment.
PYTHON = str(bare_tree.PYTHON.resolve())
LOG = "E   RuntimeError: Triton Error [CUDA]: device kernel image is invalid\n"


@pytest.fixture(scope="module")
def pure(public: Path, pyz: Path) -> Path:
    """As `--without-libzstd` makes it (`test_old_pythons.py` builds one so)."""
    path = public / "pure.pyz"
    with zipfile.ZipFile(pyz) as whole, zipfile.ZipFile(path, "w") as made:
        for name in whole.namelist():
            if not name.startswith("ondol/native/"):
                made.writestr(name, whole.read(name))
    return path


class Tree:
    """The bare tree, entered as any user."""

    def __init__(self, path: Path, python: str) -> None:
        self.path = path
        self.python = python

    def run(self, *arguments: str, uid: int, stdin: str = "") -> subprocess.CompletedProcess[str]:
        # A network namespace of its own has not even a loopback device that is up.
        enter = ["unshare", "--net", "/usr/sbin/chroot", f"--userspec={uid}:{uid}", str(self.path), self.python, "-I"]
        return subprocess.run(
            [*enter, *arguments], env={}, input=stdin, capture_output=True, text=True, timeout=120, check=False
        )


@pytest.fixture(scope="module")
def tree(public: Path, pyz: Path, pure: Path) -> Iterator[Tree]:
    path = public / "tree"
    try:
        python = bare_tree.build(path)
    except OSError as error:
        pytest.skip(f"no bare tree: {error}")
    for file in (pyz, pure, ROOT / "tests" / "programs" / "standin.py"):
        shutil.copy(file, path)
    marker.create(str(path / "store"), marker.Writers(("any",)), shared=True)
    yield Tree(path, python)
    shutil.rmtree(path, ignore_errors=True)


def test_two_builds_of_the_same_sources_are_the_same(tmp_path: Path, pyz: Path) -> None:
    assert one_file.build(tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [0, 4321])
def test_job_in_a_bare_tree_is_warm(tree: Tree, uid: int) -> None:
    job = ["/ondol.pyz", "run", "--store", "/store", "--tools", "triton", "--", tree.python, "-I", "/standin.py"]
    first = tree.run(*job, f"kernel-{uid}", uid=uid)
    assert (first.returncode, "1 published" in first.stderr) == (0, True), first
    second = tree.run(*job, f"kernel-{uid}", uid=uid)
    assert '"hits": 1' in second.stdout, second
    assert f"kernel-{uid}" in titles(tree.path / "store")


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [0, 4321])
def test_open_and_close_in_a_bare_tree(tree: Tree, uid: int) -> None:
    opened = tree.run("/ondol.pyz", "open", "--store", "/store", "--format", "slurm", "--room-file", "/tmp/r", uid=uid)
    assert opened.returncode == 0, opened.stderr
    room = (tree.path / "tmp" / "r").read_text().strip()
    closed = tree.run("/ondol.pyz", "close", room, "--status", "0", uid=uid)
    assert (closed.returncode, "nothing filled" in closed.stderr or "filled" in closed.stderr) == (0, True), closed
    (tree.path / "tmp" / "r").unlink()


@needs_root
@pytest.mark.root
@pytest.mark.parametrize("uid", [0, 4321])
def test_store_and_explain_in_a_bare_tree(tree: Tree, uid: int) -> None:
    listed = tree.run("/ondol.pyz", "store", "stats", "--store", "/store", uid=uid)
    assert listed.returncode == 0, listed.stderr
    explained = tree.run("/ondol.pyz", "explain", "--json", uid=uid, stdin=LOG)
    assert explained.returncode == 0, explained
    assert "triton" in explained.stdout


@needs_root
@pytest.mark.root
def test_own_default_store_in_a_bare_tree(tree: Tree) -> None:
    """No HOME and no passwd entry: the store is found by the UID alone."""
    (tree.path / "var" / "tmp").mkdir(exist_ok=True)
    (tree.path / "var" / "tmp").chmod(0o1777)
    job = ["/ondol.pyz", "run", "--tools", "triton", "--", tree.python, "-I", "/standin.py", "mine"]
    assert "1 published" in tree.run(*job, uid=4321).stderr
    assert '"hits": 1' in tree.run(*job, uid=4321).stdout


@needs_root
@pytest.mark.root
def test_machine_without_any_zstd_does_not_fail_the_job(tree: Tree) -> None:
    """The pure file in the bare tree: nothing can be unpacked, and that is said, with what to do."""
    job = ["run", "--store", "/store", "--tools", "triton", "--", tree.python, "-I", "/standin.py"]
    assert tree.run("/ondol.pyz", *job, "a", uid=0).returncode == 0
    cold = tree.run("/pure.pyz", *job, "a", uid=0)
    assert (cold.returncode, '"compiled": 1' in cold.stdout) == (0, True)
    assert cold.stderr.startswith("ondol: warning: running cold: there is no zstd on this machine")
    assert "pip install zstandard" in cold.stderr
    # Once as a warning, once in the summary as the reason why nothing was published.
    assert cold.stderr.count("warning:") == 1
    assert cold.stderr.count("zstd on this machine") == 2


@pytest.fixture(scope="module")
def bare_pytest(public: Path) -> Iterator[Path]:
    """pytest and what it needs, and no Ondol: what a container has, for the Python that runs this."""
    path = public / "bare-pytest"
    bare_tree.add_pytest(path)
    yield path
    shutil.rmtree(path, ignore_errors=True)


SUITE = """
import os, subprocess, sys
import pytest
import ondol, helper

@pytest.mark.parametrize("n", range(4))
def test_n(n, device):
    assert ".pyz" in ondol.__file__
    child = subprocess.run([sys.executable, "-c", "import sys, os; print(sys.path, dict(os.environ))"], capture_output=True)
    assert b".pyz" not in child.stdout, child.stdout
"""


@pytest.mark.parametrize(
    "how",
    [
        [],
        ["--start=spawn"],
        ["--launch={agent}", "--nodes=2"],
        ["--launch=env WHERE={node} {agent}", "--nodes=a,b", "--start=spawn"],
    ],
    ids=["forked", "spawned", "on nodes", "on nodes, spawned"],
)
def test_suite_does_not_need_the_installed_package(
    pyz: Path, bare_pytest: Path, tmp_path: Path, store_path: Path, how: list[str]
) -> None:
    """Modules of the checkout are found as by `python -m pytest`; what a test starts knows nothing of our file."""
    (tmp_path / "test_a.py").write_text(SUITE)
    (tmp_path / "helper.py").touch()
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(bare_pytest), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [PYTHON, str(pyz), "test", "--devices=cpu:2", "--store", str(store_path), "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *how], capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert (done.returncode, "4 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("variables", [{}, {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}], ids=["found", "not looked for"])
@pytest.mark.parametrize("beside", [False, True], ids=["installed", "file beside the installed package"])
def test_plugin_is_registered_once(
    pyz: Path, tmp_path: Path, store_path: Path, beside: bool, variables: dict[str, str]
) -> None:
    (tmp_path / "test_a.py").write_text("def test_1(device): pass\n")
    command = [sys.executable, *([str(pyz)] if beside else ["-m", "ondol"]), "test", "--devices=cpu:1"]
    words = ["--store", str(store_path), "-p", "no:cacheprovider"]
    env = {**os.environ, **variables}
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False, env=env, cwd=tmp_path)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "cannot be rewritten" not in done.stdout


def test_python_without_pytest_is_met_without_a_traceback(pyz: Path) -> None:
    for words in (["test"], ["node", "--check"]):
        done = subprocess.run(
            [PYTHON, "-I", "-S", str(pyz), *words], capture_output=True, text=True, check=False, env={}
        )
        assert done.returncode == 2, done
        assert done.stderr.startswith(f"ondol: error: ondol {words[0]} needs pytest, and {PYTHON} has none\n"), done


def test_cache_at_a_fixed_path_works_from_the_file(pyz: Path, store_path: Path) -> None:
    if why := fixed_place.why_not({"x": "/tmp"}):
        pytest.skip(f"fixed paths are not possible here: {why}")
    job = [sys.executable, "-I", str(pyz), "run", "--store", str(store_path), "--tools", "torch-extensions", "--"]
    script = 'mkdir -p "$TORCH_EXTENSIONS_DIR" && echo "$TORCH_EXTENSIONS_DIR"'
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([*job, "sh", "-c", script], capture_output=True, text=True, check=False, env=env)
    assert done.stdout.startswith("/srv/ondol/torch-extensions"), done


def test_file_works_for_the_python_at_hand(pyz: Path, store_path: Path) -> None:
    job = [sys.executable, "-I", str(pyz), "run", "--store", str(store_path), "--", "sh", "-c", "exit 7"]
    done = subprocess.run(job, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 7, done.stderr
