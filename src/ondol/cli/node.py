"""`ondol node`: what an engine starts on a node. It talks to a controller on its standard streams, not to people."""

from __future__ import annotations

import sys

from ondol.cli import flags, output

_DESCRIPTION = """The far end of `ondol test --engine …`: started by srun, ssh, docker … on a node, with the controller
on its standard input and output. Not for people; with --check it only says that it could run."""


def main(arguments: list[str]) -> int:
    made = flags.parser("node", _DESCRIPTION)
    if made.parse_args(arguments).check:
        import pytest

        from ondol import __version__

        output.say(f"ondol {__version__}, pytest {pytest.__version__}, Python {sys.version.split()[0]}")
        return 0
    from ondol.jobs import run_node

    return run_node.run()
