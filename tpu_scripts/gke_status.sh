#!/usr/bin/env bash
# Prints the state of the run on GKE, of each of its pods, and what the bucket holds.
. "$(dirname "$0")/common.sh"
need RUN_NAME
run kubectl get jobset "$RUN_NAME" --ignore-not-found
run kubectl get pods --selector="jobset.sigs.k8s.io/jobset-name=$RUN_NAME" --output=wide
if [ -n "${BUCKET:-}" ]; then
  run gcloud storage ls "$(run_url)/" || say "nothing in $(run_url) yet"
fi
