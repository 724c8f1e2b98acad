"""A cache's fault is not the test's: it has a verdict of its own, is healed, and is tried again."""

from __future__ import annotations

import json

import pytest

from handmade import write_triton_entry
from ondol.test_jobs.item_caches import evidence

pytestmark = pytest.mark.warm_pytest


def test_a_torn_entry_does_not_fail_the_test_that_meets_it(suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real Triton's own texts; the torn entry is set aside, its neighbours stay, the second attempt passes."""
    cache = suite.path / "cache"
    bad, good = write_triton_entry(cache, 1), write_triton_entry(cache, 2)
    (bad / "add.cubin").write_bytes(b"")
    suite.variables = {"TRITON_CACHE_DIR": str(cache)}
    suite.write(
        test_k=f"""
        import os, pathlib
        def test_kernel():
            group = pathlib.Path({str(bad)!r}) / "__grp__add.json"
            if group.exists():
                raise RuntimeError("Triton Error [CUDA]: device kernel image is invalid")
        def test_other():
            assert (pathlib.Path({str(good)!r}) / "__grp__add.json").exists()
        """
    )
    result = suite.pytest("--ondol-retries=1")
    item = result.record.items[0]
    assert result.verdicts == {"test_kernel": "passed", "test_other": "passed"}, result.output
    assert [attempt.outcome for attempt in item.attempts] == ["cache-fault", "passed"]
    assert item.flaky
    assert not (bad / "__grp__add.json").exists()
    assert "set aside" in result.output
    assert [json.loads(line) for line in result.journal.read_text().splitlines() if '"healed"' in line]


def test_a_place_that_cannot_be_written_is_not_blamed_on_the_test(suite) -> None:
    """Nothing can be healed there; still it is not the test that failed, and everybody is told so."""
    suite.write(
        test_k="""
        def test_kernel():
            raise PermissionError(13, "Permission denied", "/c/ABC/tmp.pid_1_1a82e68f-a8b8-4886-a926-5a9d4be953e4")
        """
    )
    result = suite.pytest("--ondol-retries=0", "--junitxml=plain.xml")
    assert result.verdicts == {"test_kernel": "cache-fault"}
    assert result.status == 1
    assert "cache fault: " in result.record.items[0].why
    assert "CACHE FAULT" in suite.pytest("--ondol-retries=0", "-v").output


@pytest.mark.parametrize(
    "body",
    [
        "assert 'x' == \"PermissionError: [Errno 13] Permission denied: '/c/tmp.pid_1_2'\"",
        "pytest.fail(\"PermissionError: [Errno 13] Permission denied: '/c/tmp.pid_1_2'\")",
        "raise RuntimeError('it failed')  # PermissionError: [Errno 13] Permission denied: '/c/tmp.pid_1_2'",
        "open('/etc/nothing/here')",
        "with pytest.raises(OSError, match='tmp.pid_'): pass",
    ],
)
def test_a_failing_test_is_not_called_a_cache_fault(suite, body: str) -> None:
    """What a test says itself, or has in its source, is never evidence against a cache."""
    suite.write(test_k=f"import pytest\ndef test_it():\n    {body}\n")
    assert suite.pytest().verdicts == {"test_it": "failed"}


def test_source_code_is_not_taken_for_what_was_raised() -> None:
    text = "def test():\n>       raise OSError(116)\n        # OSError: [Errno 116] Stale file handle\nE       ValueError: no"
    assert "Stale" not in evidence(text)
    assert "ValueError" in evidence(text)
