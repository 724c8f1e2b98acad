#!/bin/sh
# The step of the CI job that runs the batch on the simulated chips.
python tools/ci.py -d 0-1 -c deps/pto-isa-pinned -t 600
