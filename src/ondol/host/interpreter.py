"""Which Python a command will run, and which versions of a package it has: asked without importing the package.

A guess for names of directories, never for correctness: a wrong answer is the same wrong answer in the next job.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence

from ondol.host.command import asked

UNKNOWN = "unknown"
_PATIENCE = 20.0
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")
#: Says `cpython-311-torch-2.13.0+cpu`. `find_spec` of a top-level package looks for it and does not run it.
_QUESTION = r"""
import importlib.util, os, re, sys, sysconfig
sys.path = [folder for folder in sys.path if folder]
abi = (sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag).split("-")[:2]
words = ["-".join(abi)]
for package in sys.argv[1:]:
    found = "none"
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        for name in ("version.py", "_version.py"):
            path = os.path.join(folder, name)
            if found == "none" and os.path.isfile(path):
                text = open(path, encoding="utf-8", errors="replace").read()
                match = re.search(r"^(?:__version__|version)\b[^'\"\n]*['\"]([^'\"]+)['\"]", text, re.M)
                found = match.group(1) if match else "none"
    words += [package, found]
print("\n" + "-".join(words))
"""


def describe(program: str, env: Mapping[str, str], packages: Sequence[str]) -> str:
    """The ABI of the program's Python and the versions of these packages, as the name of a directory."""
    python = _python_of(program, env)
    if not python:
        return UNKNOWN
    # The last line: a user's sitecustomize may print whatever it likes before.
    said = asked([python, "-c", _QUESTION, *packages], _PATIENCE, env).rpartition("\n")[2]
    well_formed = re.fullmatch(r"\w+-\w+(?:-\w+-[\w.+]+)+", said)
    return said if well_formed and len(said) < 100 else UNKNOWN


def _python_of(program: str, env: Mapping[str, str]) -> str:
    """The command itself if it is a Python, the one in its first line, else what `python3` or `python` means."""
    path = env.get("PATH", os.defpath)
    found = shutil.which(program, path=path)
    if found and _PYTHON.fullmatch(os.path.basename(found)):
        return found
    words = _first_line(found) if found else []
    for word in words[:2]:  # `#!/usr/bin/env python3` has it second
        if _PYTHON.fullmatch(os.path.basename(word)):
            return shutil.which(word, path=path) or ""
    return shutil.which("python3", path=path) or shutil.which("python", path=path) or ""


def _first_line(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
