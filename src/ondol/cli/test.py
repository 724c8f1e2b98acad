"""`ondol test [options] ARGS`: pytest on warm, supervised workers. What is not an option of ours goes to pytest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ondol.fleet.options import OPTIONS, Option, destination

#: Nothing starts with it, so argparse leaves every word alone and `parse` sees all of them.
_NO_PREFIX = "\0"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "test",
        help="run a pytest suite on warm, supervised workers, one or more per device",
        add_help=False,
        prefix_chars=_NO_PREFIX,
    )
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(main=main)


def parse(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and the words that are pytest's."""
    parser = argparse.ArgumentParser(
        prog="ondol test",
        allow_abbrev=False,
        usage="ondol test [options] [pytest arguments]",
        description="Collect once, run on warm workers, lose no result.",
        epilog="Everything else is handed to pytest: files, -k, -m, -x, --lf, -v …",
    )
    for option in OPTIONS:
        parser.add_argument(f"--{option.name}", dest=destination(option), help=option.help, **option.kwargs)
    return parser.parse_known_args(words)


def to_pytest(option: Option, value: object) -> list[str]:
    """The option as the plugin spells it; nothing when it has its default."""
    if value == option.kwargs.get("default"):
        return []
    values = value if isinstance(value, list) else [value]
    return [f"--ondol-{option.name}={one}" for one in values]


def main(args: argparse.Namespace | list[str]) -> int:
    """Takes the command's own words, or what `add_parser`'s parser made of them."""
    from ondol.jobs import run_tests

    ours, theirs = parse(args if isinstance(args, list) else args.words)
    journal = Path(ours.ondol_journal or run_tests.default_journal())
    ours.ondol_journal = str(journal)
    ours.ondol_devices = ours.ondol_devices or "auto"
    arguments = [word for option in OPTIONS for word in to_pytest(option, getattr(ours, destination(option)))]
    request = run_tests.Request([*arguments, *theirs], journal, ours.ondol_collect_timeout)
    return run_tests.run(request)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
