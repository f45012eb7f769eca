#!/usr/bin/env bash
# jobset_run.sh COMMAND...: runs a command on a TPU slice of GKE as a JobSet.
. "$(dirname "$0")/common.sh"
need RUN_NAME BUCKET IMAGE GKE_ACCELERATOR GKE_TOPOLOGY GKE_HOSTS GKE_CHIPS_PER_HOST
if [ $# -eq 0 ]; then
  fail "which command?" "jobset_run.sh python -m train.pretrain ... --distributed"
fi

manifest=$(mktemp)
trap 'rm -f "$manifest"' EXIT
export RUN_NAME BUCKET IMAGE SPOT MAX_RESTARTS
export GKE_ACCELERATOR GKE_TOPOLOGY GKE_HOSTS GKE_CHIPS_PER_HOST
export GKE_SERVICE_ACCOUNT GKE_QUEUE GKE_DISK
python3 "$HERE/fill_jobset.py" "$@" >"$manifest"
if [ "$DRY_RUN" = 1 ]; then
  cat "$manifest"
fi
run kubectl apply --filename="$manifest"
