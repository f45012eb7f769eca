#!/usr/bin/env bash
# keep_running.sh COMMAND...: requests the TPU, sets it up and runs the command, again
# whenever the TPU is taken away, until the command is done. The command must resume when
# it runs again (train.pretrain with --checkpoints gs://...). Ctrl-C ends this loop only:
# TPU and command continue, and the same line takes them up.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME ACCELERATOR_TYPE BUCKET RUN_NAME
check_type
if [ $# -eq 0 ]; then
  fail "which command?" "keep_running.sh python -m train.pretrain ... --distributed"
fi
child=
interrupted() {
  # What runs in the background hears no Ctrl-C.
  if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null || true; fi
  say "interrupted: TPU and command go on, and cost; stop_all.sh, delete.sh"
  exit 130
}
trap interrupted INT TERM

# step SCRIPT WORD...: in the background, so that a signal to this loop is heard at once.
step() {
  local script=$1
  shift
  "$HERE/$script" "$@" &
  child=$!
  wait "$child"
}

end() {
  if [ "${DELETE_AT_END:-0}" = 1 ]; then
    step fetch.sh || true
    step delete.sh
  else
    say "the TPU is still there, and costs: delete.sh"
  fi
  exit "$1"
}

failures=0
while true; do
  code=0
  step create_queued.sh || code=$?
  if [ "$code" = 75 ]; then
    pause "$POLL_SECONDS"
    continue
  fi
  if [ "$code" != 0 ]; then
    failures=$((failures + 1))
    if [ "$failures" -ge "${MAX_FAILURES:-3}" ]; then
      say "cannot ask for a TPU; giving up"
      exit "$code"
    fi
    pause "$POLL_SECONDS"
    continue
  fi
  began=$SECONDS
  # A TPU may go at any moment, so a step that fails is a reason to look, not to end.
  step setup_all.sh || code=75
  if [ "$code" = 0 ]; then
    step run_all.sh "$@" || code=$?
  fi
  if [ "$DRY_RUN" = 1 ]; then
    exit 0
  fi
  if [ "$code" = 0 ]; then
    say "done"
    end 0
  fi
  if [ "$code" = 2 ]; then
    say "the command says that its input is at fault; again would be the same"
    end 2
  fi
  if ! state=$(request_state ACTIVE); then
    # The network here is away, say: that is no failure of the command.
    pause "$POLL_SECONDS"
    continue
  fi
  if [ "$state" != ACTIVE ]; then
    say "the TPU is gone ($state); asking again, to go on from the last checkpoint"
    failures=0
    continue
  fi
  # An hour of work is no failure in a row with the one before.
  if [ $((SECONDS - began)) -ge 3600 ]; then
    failures=0
  fi
  failures=$((failures + 1))
  if [ "$failures" -ge "${MAX_FAILURES:-3}" ]; then
    say "exit code $code $failures times on a TPU that is there; giving up"
    end "$code"
  fi
  say "exit code $code on a TPU that is there; again ($failures of ${MAX_FAILURES:-3})"
  pause "$POLL_SECONDS"
done
