"""An agent as a process of its own, for a controller that must not be forked."""

import os
import socket

from ondol.fleet import wire
from ondol.fleet.agent.agent import Agent
from ondol.fleet.agent.launch import SpawnLauncher
from ondol.fleet.starts import AsAgent, take


def main() -> None:
    start = take(AsAgent)
    if start is None:
        raise SystemExit("ondol.fleet.agent: this is started by a run of `ondol test`, not by hand")
    control = wire.Channel(socket.socket(fileno=start.control), start.token.encode())
    os.set_inheritable(control.fileno(), False)
    Agent(control, SpawnLauncher(start.session), start.limits, start.rules).run()


if __name__ == "__main__":
    main()
