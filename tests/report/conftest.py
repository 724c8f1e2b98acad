"""What the tests of reports share: one real run with a crash, a hang, a flaky test and one that leaves a thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites import Result, Suite, suite

__all__ = ["suite"]

#: Hostile to whoever puts it into a page, a script or an attribute.
MARKUP = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> javascript:alert(1)"
)
TESTS = f"""
import os, pathlib, signal, threading
import pytest

HOSTILE = {MARKUP!r}
SEEN = []

@pytest.fixture(autouse=True)
def note():
    SEEN.append(1)

@pytest.mark.parametrize("n", range(6))
def test_good(n): pass
@pytest.mark.xdist_group("state")
def test_makes_state(): pass
@pytest.mark.xdist_group("state")
def test_needs_a_fresh_worker(): assert len(SEEN) == 1
def test_crash(): os.kill(os.getpid(), signal.SIGSEGV)
@pytest.mark.ondol(timeout=2)
def test_hang():
    print("waiting for an event")
    threading.Event().wait()
def test_markup():
    print(HOSTILE)
    assert not HOSTILE
@pytest.mark.parametrize("name", [HOSTILE], ids=["<script>alert(1)<-script>"])
def test_id(name): assert 0, name
def test_stale(): raise OSError("[Errno 116] Stale file handle: '/mnt/cache/kernel.so'")
def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
def test_dies_once():
    flag = pathlib.Path(__file__).with_name("died")
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
@pytest.mark.skip(reason="no GPU")
def test_skipped(): pass
"""


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """`ondol test --html page.html --perfetto trace.json`, in a directory of its own."""
    place = tmp_path_factory.mktemp("ran")
    made = Suite(place).write(test_ops=TESTS)
    made.variables = {"ONDOL_STORE": str(place / "store"), "XDG_STATE_HOME": str(place / "state")}
    result = made.ondol("--dist=loadgroup", "--ondol-perfetto=trace.json", "--grace=0.5")
    assert result.status == 1, result.output
    return result


@pytest.fixture(scope="session")
def place(ran: Result) -> Path:
    assert ran.journal is not None
    return ran.journal.parent
