"""Ondol on a machine that says it has this driver and this GPU: `on_a_gpu.py DRIVER MODEL ARGUMENTS…`."""

import sys

from ondol.cli.main import run
from ondol.host import accelerator

_, driver, model, *arguments = sys.argv
accelerator.here = lambda: accelerator.Accelerators(driver, (model,))  # type: ignore[assignment]
sys.argv = ["ondol", *arguments]
run()
