"""`ondol node`: what an engine starts on a node. It talks to a controller on its standard streams, not to people."""

import argparse
import sys

from ondol import __version__
from ondol.cli import flags, output


@flags.command(
    "node",
    """The far end of `ondol test --engine …`: started by srun, ssh, docker … on a node, with the controller
on its standard input and output. Not for people; with --check it only says that it could run.""",
)
def main(parsed: argparse.Namespace) -> int:
    if parsed.check:
        import pytest

        output.say(f"ondol {__version__}, pytest {pytest.__version__}, Python {sys.version.split()[0]}")
        return 0
    from ondol.test_jobs import run_node

    return run_node.run()
