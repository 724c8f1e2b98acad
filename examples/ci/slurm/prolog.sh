#!/bin/sh
# Prolog= in slurm.conf: as root, on every node of a job, before it starts. Every job of the partition begins warm.
# Nothing is published from here: what root publishes everybody trusts, and what is in the room is the user's work.
# Jobs that should publish say `srun ondol run …` themselves. A prolog that fails drains the node, so this never does.
store=${ONDOL_STORE:-/shared/ondol}
state=${ONDOL_STATE:-/run/ondol}
umask 022
mkdir -p "$state" || exit 0
ondol open --store "$store" --tools triton --publish never --uid "$SLURM_JOB_UID" --quiet \
  --room-file "$state/$SLURM_JOB_ID.room" > "$state/$SLURM_JOB_ID.env" || rm -f "$state/$SLURM_JOB_ID.env"
exit 0
