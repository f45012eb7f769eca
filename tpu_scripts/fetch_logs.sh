#!/usr/bin/env bash
# Fetches the log of each worker to runs/tpu/RUN_NAME/logs: 0.log, 1.log, ... from the
# workers, and under bucket/ what workers saved before they were taken away.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME

folder=${LOGS:-$ROOT/runs/tpu/$RUN_NAME/logs}
run mkdir -p "$folder/bucket"
if [ "$(request_state ACTIVE)" = ACTIVE ]; then
  on_workers all "cat ~/runs/$(quoted "$RUN_NAME")/log" --output-directory="$folder" ||
    say "a worker did not answer"
fi
if [ -n "${BUCKET:-}" ]; then
  run gcloud storage rsync "$(run_url)/logs" "$folder/bucket" --recursive ||
    say "no logs in the bucket"
fi
say "logs: $folder"
