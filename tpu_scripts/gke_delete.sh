#!/usr/bin/env bash
# Deletes the run on GKE, by XPK or not; node pools and the bucket stay.
. "$(dirname "$0")/common.sh"
need RUN_NAME
run kubectl delete jobset "$RUN_NAME" --ignore-not-found
