"""What all tests share: a clean environment, stores, other users (`people`), things made by hand (`handmade`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import warm
from handmade import elf, key_of, make_entry, trust_everybody, write_triton_entry
from ondol.fleet.devices import THREAD_VARIABLES
from ondol.store import marker
from ondol.store.directory import DirectoryStore
from ondol.tools import table
from running_together import group_of
from warm_pytest import WarmPytest

__all__ = ["elf", "key_of", "make_entry", "trust_everybody", "write_triton_entry"]

pytest_plugins = ["people"]
# A busy machine is slow, not wrong; and a change is judged by the same examples as the one before it. To look for new
# ones: HYPOTHESIS_PROFILE=explore.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ondol", settings.get_profile("explore"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ondol"))

#: Variables of the machine that runs the tests must not decide what they test.
_FOREIGN = (
    "ONDOL_",
    "PYTEST_XDIST",
    "PYTEST_PLUGINS",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
    "TRITON_",
    "GITHUB_",
    "GITLAB_",
    "CI_",
    "BUILDKITE",
    "JENKINS",
    "SLURM_",
    "RUNNER_",
)
#: Also those that `ondol test` sets when it runs this suite.
_OURS = {
    "CI",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    *(name for row in table.ROWS for name in row.variables),
    *THREAD_VARIABLES,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        item.add_marker(pytest.mark.xdist_group(group_of(path)))


class ProcessorTime:
    """Writes into `--junitxml` how much processor time each test took, with all processes that it has waited for."""

    def __init__(self) -> None:
        self.spent = self.now()

    def now(self) -> float:
        return sum(os.times()[:4]) + warm.seconds() + WarmPytest.spent

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            before, self.spent = self.spent, self.now()
            item.user_properties.append(("cpu", f"{self.spent - before:.2f}"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessorTime())


def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in _OURS:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def clean_environment_of_what_tests_share() -> Iterator[None]:
    """Fixtures of a wider scope are made before those of a test."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        clean(monkeypatch)
        yield


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    clean(monkeypatch)


@pytest.fixture(autouse=True)
def stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that a test opens: a worker runs thousands of tests, and each would leave two descriptors."""
    opened: list[DirectoryStore] = []
    begin = DirectoryStore.__init__

    def noted(self: DirectoryStore, *arguments: Any) -> None:
        begin(self, *arguments)
        opened.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "__init__", noted)
        yield
    for store in opened:
        store.close()


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    return path


@pytest.fixture
def store(store_path: Path) -> DirectoryStore:
    return DirectoryStore(str(store_path), trust_everybody)
