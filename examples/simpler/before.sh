#!/bin/sh
# The step of the CI job that runs the batch on the simulated chips.
python runner.py batch.ondol.toml --devices 0,1 --timeout 600
