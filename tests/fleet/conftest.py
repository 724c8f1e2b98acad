"""What the run wing's tests share: a pytest suite in a directory of its own."""

from suites import suite

__all__ = ["suite"]
