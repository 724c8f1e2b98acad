#!/bin/sh
# Epilog= in slurm.conf: as root, on every node, when the job is over, also after scancel and time limits.
state=${ONDOL_STATE:-/run/ondol}
if [ -s "$state/$SLURM_JOB_ID.room" ]; then
  ondol close "$(cat "$state/$SLURM_JOB_ID.room")" --status 0 --quiet || true
fi
rm -f "$state/$SLURM_JOB_ID.room" "$state/$SLURM_JOB_ID.env"
exit 0
