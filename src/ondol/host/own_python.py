"""How Ondol starts a Python that knows Ondol: the installed package by `python -m`, `ondol.pyz` through that one file.

Nothing of it is put into the environment: a PYTHONPATH of ours would be seen by every program that a test starts.
"""

import os
import sys

import ondol

#: For pytest. By these words its plugin is there exactly once: installed or not, with autoloading switched off or not.
PLUGIN = ("-p", "no:ondol", "-p", "ondol.pytest_plugin")


def archive() -> str:
    """The one file that we were started from; empty when we are an installed package."""
    above = os.path.dirname(os.path.dirname(os.path.abspath(ondol.__file__)))
    return above if os.path.isfile(above) else ""


def python(module: str, *arguments: str) -> list[str]:
    """`python -m MODULE ARGUMENTS`, with our modules to be found."""
    one_file = archive()
    return [sys.executable, *([one_file] if one_file else []), "-m", module, *arguments]


def pytest(*arguments: str) -> list[str]:
    """The user's pytest with our plugin."""
    return python("pytest", *PLUGIN, *arguments)
