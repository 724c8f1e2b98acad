"""`ondol`, and `python -m ondol`. Written for Python 3.6: see `unguarded`."""

import sys


def run() -> None:
    """The program's entry point."""
    if sys.version_info >= (3, 10):  # noqa: UP036
        from ondol.cli.main import run as ours

        ours()
    from ondol.unguarded import instead

    here = f"this Python is {sys.version_info[0]}.{sys.version_info[1]}, and Ondol needs 3.10 or newer"
    sys.exit(instead(sys.argv[1:], here))


if __name__ == "__main__":
    run()
