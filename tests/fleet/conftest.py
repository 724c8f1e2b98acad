"""What the run wing's tests share: a pytest suite in a directory of its own."""

from suites import new_suite, suite

__all__ = ["new_suite", "suite"]
