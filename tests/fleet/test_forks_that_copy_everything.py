"""A process per item, of a suite that has loaded much: each fork copies an entry for each page of it, and each end
looks at all of them again.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from ondol.host import huge_pages

HEAVY = """
    import os, pytest
    LOADED = [str(n) * 10 for n in range(600_000)]  # 64 MiB of small objects
    @pytest.mark.parametrize("n", range(4))
    def test_n(n):
        with open("/proc/self/smaps_rollup") as lines:
            [large] = [int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")]
        with open(os.environ["LOG"], "a") as log: log.write(f"{large}\\n")
        assert LOADED[:4] == ["0" * 10, "1" * 10, "2" * 10, "3" * 10]
        LOADED[n] = "mine"
"""

ALLOCATES = """
    from ondol.host import huge_pages
    loaded = [str(n) * 10 for n in range(600_000)]
    before = hash(tuple(loaded))
    print(huge_pages.collapse())
    assert hash(tuple(loaded)) == before
"""


def kernel_makes_large_pages() -> bool:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(ALLOCATES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) > 0


def test_the_forks_of_many_isolated_items_share_a_heap_of_large_pages(suite) -> None:
    if not kernel_makes_large_pages():
        pytest.skip("this kernel makes no large pages when asked (Linux 6.1 and later do)")
    few_are_many = "from ondol.test_jobs import local_agent\nlocal_agent.WORTH_LARGE_PAGES = 3\n"
    suite.write(conftest=few_are_many, test_it=HEAVY)
    result = suite.pytest("--ondol-isolate=item", devices="cpu:2")
    assert result.status == 0, result.output
    assert len(result.log) == 4
    assert all(int(kibibytes) > 0 for kibibytes in result.log)


def test_a_kernel_that_knows_no_such_advice_changes_nothing(monkeypatch) -> None:
    monkeypatch.setattr(huge_pages, "_COLLAPSE", 9999)
    assert huge_pages.collapse() == 0
