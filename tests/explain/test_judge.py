"""What `judge` says of a failed command's output decides whether a cache is touched."""

from __future__ import annotations

from ondol.explain.match import judge

TORN = "error: Failed to install: rich-15.0.0-py3-none-any.whl (rich==15.0.0)\n  cause: The wheel is invalid: Metadata field Name not found\n"
FULL = "OSError: [Errno 28] No space left on device\n"


def test_torn_archive_is_recognised() -> None:
    verdict = judge(TORN)
    assert verdict.kind == "cache"
    assert verdict.signature is not None
    assert verdict.signature.heals == "uv"


def test_full_disk_does_not_make_us_delete_good_entries() -> None:
    assert judge(FULL + TORN).kind == "place"


def test_unknown_failure_touches_no_cache() -> None:
    assert judge("AssertionError: 1 != 2\n") == ("unknown", None, "")
