"""Installed libraries whose releases are known to harm shared caches."""

from __future__ import annotations

from collections.abc import Iterator

from ondol.doctor import commands, installed, versions
from ondol.doctor.api import Check, Finding, look
from ondol.doctor.subject import MACHINE, Subject


class Libraries(Check):
    name = "libraries"
    summary = "releases of filelock and Triton that are known to break shared caches, in the interpreters at hand"
    roles = frozenset({MACHINE})

    def run(self, subject: Subject) -> Iterator[Finding]:
        packages = tuple(sorted({bad.package for bad in versions.BAD}))
        for one in installed.find(packages, subject.machine.env):
            for bad in versions.known_bad(one.package, one.version):
                what = f"{one.package} {one.version} {bad.what}"
                fix = f"{commands.quote(one.python)} -m pip install {commands.quote(bad.wanted)}"
                yield Finding(self.name, bad.severity, what, look(one.folder), bad.why, fix)
