"""`ondol run --retries`: a command that failed of its cache runs again, mended; everything else is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from people import Program

pytestmark = pytest.mark.warm

#: Counts its runs, and fails as Triton does while its cache holds a torn entry, which its first run leaves behind.
MEETS_A_TORN_ENTRY = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[2])
from handmade import write_triton_entry
runs = pathlib.Path(sys.argv[1])
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
cache = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
if runs.read_text() == "x":
    write_triton_entry(cache, 2)
    (write_triton_entry(cache, 1) / "add.cubin").write_bytes(b"")
torn = [p for p in cache.glob("*/add.cubin") if not p.stat().st_size and (p.parent / "__grp__add.json").exists()]
if torn:
    sys.exit("RuntimeError: Triton Error [CUDA]: device kernel image is invalid")
print("entries", len(list(cache.glob("*/__grp__add.json"))))
"""
HELPERS = str(Path(__file__).parents[1])


def run(program: Program, store: Path, runs: Path, code: str, *flags: str):
    words = ["run", "--store", str(store), *flags, "--", program.python, "-c", code, str(runs), HELPERS]
    return program.ondol(*words)


def test_a_torn_entry_is_set_aside_and_the_job_runs_again(program: Program, store_path: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = run(program, store_path, runs, MEETS_A_TORN_ENTRY, "--retries", "1", "--json", str(tmp_path / "report"))
    assert (done.returncode, done.stdout, runs.read_text()) == (0, "entries 1\n", "xx"), done.stderr
    assert "a fault of the triton cache" in done.stderr
    assert "1 entry set aside" in done.stderr
    assert json.loads((tmp_path / "report").read_text())["tools"]["triton"]["published"] == 1


def test_a_command_runs_once_unless_more_was_asked_for(program: Program, store_path: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = run(program, store_path, runs, MEETS_A_TORN_ENTRY)
    assert (done.returncode, runs.read_text()) == (1, "x")


@pytest.mark.parametrize(
    "words",
    [
        "AssertionError: 1 != 2",
        "requests.exceptions.ConnectionError: Network is unreachable",
        "OSError: [Errno 28] No space left on device",
        "",
    ],
)
def test_a_failure_that_is_no_caches_is_final(program: Program, store_path: Path, tmp_path: Path, words: str) -> None:
    runs = tmp_path / "runs"
    code = f"import sys; open(sys.argv[1], 'a').write('x'); sys.stderr.write({words!r}); sys.exit(5)"
    done = run(program, store_path, runs, code, "--retries", "3")
    assert (done.returncode, runs.read_text()) == (5, "x")
    assert words in done.stderr


def test_the_last_failure_is_shown_as_it_is(program: Program, store_path: Path, tmp_path: Path) -> None:
    """A fault that healing does not cure: an empty cache is tried, then the failure is final and verbatim."""
    runs = tmp_path / "runs"
    code = (
        "import os, sys; open(sys.argv[1], 'a').write('x')\n"
        "sys.stderr.write('RuntimeError: Triton Error [CUDA]: device kernel image is invalid\\n'); sys.exit(9)"
    )
    done = run(program, store_path, runs, code, "--retries", "1")
    assert (done.returncode, runs.read_text()) == (9, "xx")
    said = [line for line in done.stderr.splitlines() if line.startswith("RuntimeError: ")]
    assert said == ["RuntimeError: Triton Error [CUDA]: device kernel image is invalid"] * 2
    assert "it starts anew, empty" in done.stderr


def test_what_the_last_attempt_broke_on_is_set_aside_too(program: Program, store_path: Path, tmp_path: Path) -> None:
    """It would be published, and the next job would meet it."""
    runs = tmp_path / "runs"
    code = MEETS_A_TORN_ENTRY.replace('if runs.read_text() == "x":\n    write_triton_entry(cache, 2)', "if True:")
    code = code.replace("write_triton_entry(cache, 1)", "write_triton_entry(cache, len(runs.read_text()))")
    done = run(program, store_path, runs, code, "--retries", "1")
    assert (done.returncode, runs.read_text()) == (1, "xx"), done.stderr
    assert done.stderr.count("1 entry set aside") == 2, done.stderr
