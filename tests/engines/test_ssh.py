"""A real `ssh` to a real `sshd` on this machine, with keys and a port of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from people import needs_root
from slurm.cluster import free_ports
from suites import Suite

pytestmark = [pytest.mark.real, pytest.mark.root, needs_root]


@pytest.fixture
def ssh(tmp_path: Path, suite: Suite) -> Iterator[Path]:
    """The configuration file of a client that reaches `here`."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if not sshd or not shutil.which("ssh"):
        pytest.skip("no sshd on this machine (tests/setup_machine.py installs openssh-server)")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (port,) = free_ports(1)
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'authorized'}\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        "AcceptEnv *\n"
    )
    (folder / "config").write_text(
        f"Host here there\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n"
        f" IdentityFile {folder / 'user'}\n IdentitiesOnly yes\n StrictHostKeyChecking no\n"
        f" UserKnownHostsFile {folder / 'known'}\n LogLevel ERROR\n SendEnv ONDOL_* LOG PYTEST_* PYTHONPATH\n"
    )
    log = open(folder / "log", "wb")
    daemon = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log)
    log.close()

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert suite.wait_for(answers), (folder / "log").read_text()
        yield folder / "config"
    finally:
        daemon.terminate()
        daemon.wait()


def test_items_reach_another_machine_by_ssh(suite: Suite, ssh: Path) -> None:
    suite.write(
        test_a="""
        import os, pytest
        @pytest.mark.parametrize("n", range(6))
        def test_n(n, device):
            assert os.environ["SSH_CONNECTION"]
        """
    )
    wrapper = suite.path / "bin" / "ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {ssh} "$@"\n')
    wrapper.chmod(0o755)
    suite.variables["PATH"] = f"{wrapper.parent}:{os.environ['PATH']}"
    result = suite.ondol("--engine=ssh:here,there", devices="cpu:1")
    assert result.record.counts() == {"passed": 6}, result.output
    assert {item.attempts[-1].device.split("/")[0] for item in result.record.items} <= {"here", "there"}
    assert suite.all_gone()
    refused = suite.ondol("--engine=ssh:nowhere.invalid", devices="cpu:1")
    assert refused.status == 121
    assert "Could not resolve hostname" in refused.output
