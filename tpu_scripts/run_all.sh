#!/usr/bin/env bash
# run_all.sh COMMAND...: starts one command on all workers and waits for its end.
# The command goes on where this script is interrupted or loses its connection; again,
# it finds the running command and waits for it. DETACH=1 starts without waiting.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME
if [ $# -eq 0 ]; then
  fail "which command?" "run_all.sh python -m train.pretrain ... --distributed"
fi

url=
if [ -n "${BUCKET:-}" ]; then
  url=$(run_url)
fi
on_workers "bash $WORKER_SCRIPTS/start.sh $(quoted "$RUN_NAME" "$url" "$@")"
if [ "${DETACH:-0}" != 1 ]; then
  # In its place, so that a signal reaches it.
  exec "$HERE/wait_run.sh"
fi
