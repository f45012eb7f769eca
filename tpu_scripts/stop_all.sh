#!/usr/bin/env bash
# Sends SIGTERM to the command on all workers: training saves a checkpoint and ends.
# End keep_running.sh first (Ctrl-C), or it starts the command again.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME
on_workers "bash $WORKER_SCRIPTS/stop.sh $(quoted "$RUN_NAME")"
