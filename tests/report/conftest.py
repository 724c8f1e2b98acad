"""What the tests of reports share: one real run with a crash, a hang, a flaky test and one that leaves a thread."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from report_window import MARKUP, PATIENCE, Window
from suites import Result, Suite, suite

__all__ = ["suite"]

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
@pytest.mark.ondol(timeout=5)
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
    result = made.ondol("--dist=loadgroup", "--ondol-html=page.html", "--ondol-perfetto=trace.json", "--grace=0.5")
    assert result.status == 1, result.output
    return result


@pytest.fixture(scope="session")
def place(ran: Result) -> Path:
    assert ran.journal is not None
    return ran.journal.parent


# ---------------------------------------------------------------------- a browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    with sync_playwright() as playwright:
        # As root it cannot make its own sandbox; the pages are ours. In a container /dev/shm may be too small for it.
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        opened = playwright.chromium.launch(executable_path=program, args=flags, timeout=PATIENCE)
        yield opened
        opened.close()


@pytest.fixture
def window(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Makes windows; when the test is over, none of them may have complained or sent a request."""
    windows: list[Window] = []

    def make(**options: Any) -> Window:
        windows.append(Window(browser, **options))
        return windows[-1]

    yield make
    for one in windows:
        one.context.close()
    for one in windows:
        one.check()


@pytest.fixture(scope="session")
def _kept_window(browser: Browser) -> Window:
    return Window(browser)


@pytest.fixture
def kept_window(_kept_window: Window) -> Iterator[Window]:
    """The same one for all tests that store nothing in it: a new one is a new process of the browser."""
    _kept_window.again()
    yield _kept_window
    assert _kept_window.page.evaluate("() => localStorage.length") == 0
    _kept_window.check()


@pytest.fixture
def page(kept_window: Window, place: Path) -> Page:
    """The page of the real run."""
    return kept_window.open(place / "page.html")
