#!/bin/sh
# The step of the CI job that runs the batch on the simulated chips.
ondol test batch.ondol.toml --devices sim:2 --session-timeout 600 --junitxml results.xml
