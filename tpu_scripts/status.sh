#!/usr/bin/env bash
# Prints the state of the TPU, of the command on each worker, and what the bucket holds.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME

state=$(request_state ACTIVE)
printf 'TPU %s: %s\n' "$TPU_NAME" "$state"
if [ "$state" = ACTIVE ]; then
  on_workers "bash $WORKER_SCRIPTS/state.sh $(quoted "$RUN_NAME")" ||
    say "a worker did not answer"
fi
if [ -n "${BUCKET:-}" ]; then
  run gcloud storage ls "$(run_url)/" || say "nothing in $(run_url) yet"
fi
