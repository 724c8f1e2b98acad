#!/bin/sh
# The step of the CI job that runs the batch on the simulated chips.
ondol test chip.ondol.toml --devices sim:2 --retries 3 --session-timeout 600 --log-dir logs --junitxml results.xml
status=$?
[ $status -eq 1 ] || exit $status
# What failed, once more with the pinned PTO-ISA.
PTO_ISA_ROOT=deps/pto-isa-pinned ondol test chip.ondol.toml --lf --devices sim:2 --retries 3 --session-timeout 600 --log-dir pinned-logs --junitxml pinned.xml
