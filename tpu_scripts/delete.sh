#!/usr/bin/env bash
# Deletes the TPU and its request; what stands in the bucket stays. ASYNC=1: do not wait.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME

if [ "$(request_state ACTIVE)" = NONE ]; then
  say "no $TPU_NAME: nothing to delete"
  exit 0
fi
command=(gcloud compute tpus queued-resources delete "$TPU_NAME"
  --project="$PROJECT" --zone="$ZONE" --force --quiet)
if [ "${ASYNC:-0}" = 1 ]; then
  command+=(--async)
fi
run "${command[@]}"
