#!/usr/bin/env bash
# fetch.sh [FOLDER]: copies the log of each worker to runs/tpu/RUN_NAME/logs (0.log, ...;
# bucket/ has the logs of workers that are gone), and FOLDER, such as runs/audit, from
# worker 0, which writes the reports.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME

folder=$ROOT/runs/tpu/$RUN_NAME/logs
run mkdir -p "$folder/bucket"
if [ "$(request_state ACTIVE)" = ACTIVE ]; then
  # One address a worker, joined by semicolons. (ssh has --output-directory for this,
  # which a release of gcloud that was read ignores.)
  ask=(gcloud compute tpus tpu-vm describe "$TPU_NAME"
    --project="$PROJECT" --zone="$ZONE" "--format=value(networkEndpoints[].ipAddress)")
  show "${ask[@]}"
  addresses=
  if [ "$DRY_RUN" != 1 ]; then
    addresses=$("${ask[@]}") || say "the TPU does not answer"
  fi
  IFS=';' read -r -a workers <<<"$addresses;"
  for worker in "${!workers[@]}"; do
    scp_with "$worker" "$TPU_NAME:runs/$RUN_NAME/log" "$folder/$worker.log" ||
      say "no log from worker $worker"
  done
  if [ $# -gt 0 ]; then
    scp_with 0 "$TPU_NAME:jaxcontam/$1" "$ROOT/runs/tpu/$RUN_NAME" --recurse
  fi
fi
if [ -n "${BUCKET:-}" ]; then
  run gcloud storage rsync "$(run_url)/logs" "$folder/bucket" --recursive ||
    say "no logs in the bucket"
fi
say "logs: $folder"
