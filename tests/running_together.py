"""Which test files must follow each other in one worker."""

from __future__ import annotations

#: Files run side by side, the tests of a file in order in one process. What exists once on a machine, or is counted
#: over several files, is a group: its files follow each other in one process.
_TOGETHER = {
    "tests/slurm/": "slurm",
    "tests/seeds/test_tensorrt_llm.py": "slurm",
    "tests/faults/": "crash points",
    "tests/walls/test_container": "podman",
}


def group_of(path: str) -> str:
    """The group of a file, given as seen from the repository's root; a file alone is named after itself."""
    return next((group for begin, group in _TOGETHER.items() if path.startswith(begin)), path)
