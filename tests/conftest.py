"""What all tests share: a clean environment, stores, other users (`people`), things made by hand (`making`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from making import elf, key_of, make_entry, trust_everybody, write_triton_entry
from ondol.store import marker
from ondol.store.directory import DirectoryStore

__all__ = ["elf", "key_of", "make_entry", "trust_everybody", "write_triton_entry"]

pytest_plugins = ["people"]
# A busy machine is slow, not wrong.
settings.register_profile("ondol", deadline=None)
settings.load_profile("ondol")

#: Variables of the machine that runs the tests must not decide what they test.
_FOREIGN = (
    "ONDOL_",
    "PYTEST_XDIST",
    "TRITON_",
    "GITHUB_",
    "GITLAB_",
    "CI_",
    "BUILDKITE",
    "JENKINS",
    "SLURM_",
    "RUNNER_",
)

#: Files run side by side, the tests of a file in order in one process. What exists once on a machine, or is counted
#: over several files, is a group: its files follow each other in one process.
_TOGETHER = {
    "tests/slurm": "slurm",
    "tests/faults": "crash points",
    "tests/walls/test_containers.py": "podman",
    "tests/walls/test_container_nodes.py": "podman",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(config.rootpath).as_posix()
        together = [group for begin, group in _TOGETHER.items() if path.startswith(begin)]
        item.add_marker(pytest.mark.xdist_group(together[0] if together else path))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in ("CI", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name)


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    marker.create(str(path), marker.Writers(), shared=True)
    return path


@pytest.fixture
def store(store_path: Path) -> DirectoryStore:
    return DirectoryStore(str(store_path), trust_everybody)
