"""Findings that accuse the innocent hide the true ones: what is normal is not named, what repeats is named once.

What frameworks start for themselves is in `test_pools_in_a_fork`, where torch is imported anyway.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.warm_pytest

LOADING = """
    import ctypes, os, pytest, shutil, subprocess, tempfile
    keep = []

    def load(path):
        keep.append(ctypes.CDLL(str(path)))
        return keep[-1].answer()

    @pytest.mark.parametrize("n", range(8))
    def test_unlinked(n, tmp_path):
        with tempfile.NamedTemporaryFile(suffix=".so", delete=False) as file:
            shutil.copy(os.environ["LIBRARY"], file.name)
        assert load(file.name) == 42
        os.unlink(file.name)

    @pytest.mark.parametrize("n", range(2))
    def test_directory_removed(n):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.environ["LIBRARY"], folder + "/kernel.so")
            assert load(folder + "/kernel.so") == 42

    def test_replaced(tmp_path_factory):
        path = tmp_path_factory.mktemp("fixed") / "kernel.so"
        shutil.copy(os.environ["LIBRARY"], path)
        assert load(path) == 42
        new = path.with_suffix(".new")
        shutil.copy(os.environ["LIBRARY"], new)
        os.rename(new, path)
"""


@pytest.fixture
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "one.c").write_text("int answer(void) { return 42; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "one.so", folder / "one.c"], check=True)
    return folder / "one.so"


def findings(result) -> dict[str, list[str]]:
    items = {item.nodeid.split("::")[1]: item for item in result.record.items}
    found = {name: [f"{k}: {w}" for a in item.attempts for k, w in a.dirt] for name, item in items.items()}
    return {name: these for name, these in found.items() if these}


def left_behind(result) -> list[str]:
    return [line for line in result.output.splitlines() if line.startswith("left behind:")]


def test_a_library_removed_after_loading_is_fine_and_one_replaced_is_named(suite, library) -> None:
    """TileLang compiles to a temporary file, loads it and removes it: nobody can load that path and get old code.
    A file that was put in its place is another matter: who loads it gets the code of the first."""
    suite.variables["LIBRARY"] = str(library)
    suite.write(test_l=LOADING)
    result = suite.pytest("--ondol-hygiene=fail", "--ondol-judge=off")
    found = findings(result)
    assert list(found) == ["test_replaced"]
    assert len(found["test_replaced"]) == 1
    assert "kernel.so was replaced under a mapping" in found["test_replaced"][0]
    assert [name for name, verdict in result.verdicts.items() if verdict != "passed"] == ["test_replaced"]


def test_a_path_that_comes_back_with_other_code_is_named_when_it_does(suite, library) -> None:
    """Removed in one item, written again in a later one: the later one is where a load goes wrong."""
    suite.variables["LIBRARY"] = str(library)
    suite.write(
        test_l="""
        import ctypes, os, shutil
        keep = []
        def test_removes():
            shutil.copy(os.environ["LIBRARY"], "kernel.so")
            keep.append(ctypes.CDLL("./kernel.so")); os.unlink("kernel.so")
        def test_between(): pass
        def test_writes_again(): shutil.copy(os.environ["LIBRARY"], "kernel.so")
        def test_after(): pass
        """
    )
    assert list(findings(suite.pytest())) == ["test_writes_again"]


def test_a_change_that_changes_nothing_is_not_told(suite) -> None:
    """`sys.path: added [], removed []` says nothing that anybody could mend."""
    suite.write(
        test_p="""
        import sys
        def test_again(): sys.path.insert(0, sys.path[-1])
        def test_swapped(): sys.path.append(sys.path.pop(0))
        def test_true(): sys.path.append("/nowhere")
        def test_after(): pass
        """
    )
    assert findings(suite.pytest()) == {"test_true": ["sys.path: added ['/nowhere']"]}


def test_the_same_finding_of_many_items_is_one_line_with_a_count(suite) -> None:
    suite.write(
        test_m="""
        import pytest, threading
        keep = []
        @pytest.mark.parametrize("n", range(30))
        def test_thread(n): threading.Thread(target=threading.Event().wait, name="poller", daemon=True).start()
        @pytest.mark.parametrize("n", range(3))
        def test_file(n): keep.append(open(__file__))
        def test_other(): keep.append(open("/etc/passwd"))
        """
    )
    lines = left_behind(suite.pytest())
    assert len(lines) == 3, lines
    assert lines[0] == "left behind: test_m.py::test_thread[0] and 29 more (thread: poller)"
    assert lines[1].startswith("left behind: test_m.py::test_file[0] and 2 more (descriptor: ")
    assert lines[2].startswith("left behind: test_m.py::test_other (descriptor: ")


def test_hundreds_of_one_kind_do_not_hide_the_one_of_another(suite) -> None:
    suite.write(
        test_m="""
        import os, pytest, subprocess
        keep = []
        @pytest.mark.parametrize("name", [a + b for a in "abcdef" for b in "ghijkl"])
        def test_file(name, tmp_path): keep.append(open(tmp_path / name, "w"))
        def test_child():
            keep.append(subprocess.Popen(["sleep", "600"]))
            while not open(f"/proc/{keep[-1].pid}/cmdline").read(): pass  # for a moment a new program has no words
        """
    )
    lines = left_behind(suite.pytest("--ondol-judge=off"))
    assert len([line for line in lines if "descriptor" in line]) == 4, lines
    assert "left behind: and 33 more like these (descriptor; the report lists them)" in lines
    assert re.search(r"test_child \(child: pid \d+, (running|sleeping)( in \w+)?: sleep 600\)", "\n".join(lines)), lines


@pytest.mark.parametrize("driver", [True, False])
def test_what_a_driver_opens_for_itself_is_its_own(suite, driver: bool) -> None:
    """CUDA keeps a pipe and a socket from the moment the device is opened; an item without a device has no such excuse."""
    (suite.path / "device").write_text("")
    suite.write(
        conftest=f"from ondol.fleet.worker import hygiene\nhygiene.DEVICE_FILES = ({str(suite.path / 'device')!r},)\n"
        "hygiene.IGNORED_FILES += hygiene.DEVICE_FILES\n",
        test_a=f"""
        import os, socket
        kept = []
        def test_first_use():
            if {driver}:
                kept.append(os.open({str(suite.path / "device")!r}, os.O_RDONLY))
            kept.extend([os.pipe(), socket.socket()])
        """,
    )
    result = suite.pytest(devices="cpu:1")
    assert result.record.counts() == {"passed": 1}
    assert ("left behind" in result.output) is not driver, result.output


def test_memory_that_the_driver_shares_with_other_processes_is_fine(suite) -> None:
    """FlagGems starts processes with torch.multiprocessing: libcuda opens such a file, and keeps it."""
    suite.write(
        test_shm="""
            import os
            def test_shared():
                path = f"/dev/shm/cuda.shm.0.{os.getpid():x}.1"
                os.open(path, os.O_CREAT | os.O_RDWR)
                os.unlink(path)
            def test_other(tmp_path):
                os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
        """
    )
    result = suite.pytest("--ondol-judge=off")
    assert [line.split()[2] for line in left_behind(result)] == ["test_shm.py::test_other"]
