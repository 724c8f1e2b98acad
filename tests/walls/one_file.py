"""Ondol as one file, made by the script that makes it for users."""

from __future__ import annotations

import importlib.util

from people import ROOT

_spec = importlib.util.spec_from_file_location("one_file", ROOT / "packaging" / "one_file.py")
assert _spec is not None
assert _spec.loader is not None
_script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_script)
build = _script.build
