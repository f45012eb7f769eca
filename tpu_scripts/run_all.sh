#!/usr/bin/env bash
# run_all.sh COMMAND...: starts one command on all workers and waits for its end. It is
# detached: a lost connection or Ctrl-C here does not end it, and the same line waits for
# it again. DETACH=1 starts without waiting. Exit code: 0 if it is 0 on all workers, else
# the largest; 75 where a worker cannot be asked, as on a TPU that was taken away.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME ACCELERATOR_TYPE
check_type
if [ $# -eq 0 ]; then
  fail "which command?" "run_all.sh python -m train.pretrain ... --distributed"
fi

url=
if [ -n "${BUCKET:-}" ]; then
  url=$(run_url)
fi
on_workers "bash $WORKER_SCRIPTS/start.sh $(quoted "$RUN_NAME" "$url" "$@")"
if [ "${DETACH:-0}" = 1 ]; then
  exit 0
fi
trap 'say "no longer waiting; the command continues: status.sh, stop_all.sh"; exit 130' INT TERM

failed=0
while true; do
  if answer=$(on_workers "bash $WORKER_SCRIPTS/state.sh $(quoted "$RUN_NAME")"); then
    if [ "$DRY_RUN" = 1 ]; then
      exit 0
    fi
    failed=0
    printf '%s\n' "$answer" | grep '^jaxcontam-log 0 ' | cut -d ' ' -f 3- >&2 || true
    states=$(printf '%s\n' "$answer" | sed -n 's/^jaxcontam-run [^ ]* //p')
    if grep -q '^absent' <<<"$states"; then
      say "a worker knows nothing of $RUN_NAME"
      exit 75
    fi
    n_answers=$(grep -c . <<<"$states" || true)
    if [ "$n_answers" -lt "$N_WORKERS" ]; then
      say "$n_answers of the $N_WORKERS workers of $ACCELERATOR_TYPE answer"
      exit 75
    fi
    if ! grep -q '^running' <<<"$states"; then
      code=$(sed -n 's/^exited //p' <<<"$states" | sort -n | tail -n 1)
      say "$RUN_NAME ended with exit code ${code:-75}"
      exit "${code:-75}"
    fi
  else
    # One lost connection says nothing; three in a row are no accident.
    failed=$((failed + 1))
    if [ "$failed" -ge 3 ]; then
      say "the workers do not answer"
      exit 75
    fi
  fi
  QUIET=1
  pause "$POLL_SECONDS"
done
