#!/bin/sh
# TaskProlog= in slurm.conf: as the user, before every task. What it prints as `export NAME=value` the task gets.
file="${ONDOL_STATE:-/run/ondol}/$SLURM_JOB_ID.env"
if [ -r "$file" ]; then
  cat "$file"
fi
exit 0
