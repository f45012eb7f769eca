#!/usr/bin/env bash
# Shows the bucket to every worker as /mnt/jaxcontam, for reading: corpora, models.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME BUCKET
on_workers "bash $WORKER_SCRIPTS/mount.sh $(quoted "${BUCKET#gs://}")"
