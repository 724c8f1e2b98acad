#!/bin/bash
# What every rank runs in its container. A stage on one node is not to be taken for a part of a larger MPI job, so
# whatever says so goes first.
for name in $(compgen -e); do
  case $name in SLURM_* | PMI_* | PMIX_* | OMPI_*) unset "$name" ;; esac
done
eval "$STAGE_COMMAND"
