#!/usr/bin/env bash
# Waits until the TPU is there. Exit code 1 where the request can no longer be served.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME

before=
while true; do
  state=$(request_state ACTIVE)
  if [ "$state" != "$before" ]; then
    say "$TPU_NAME is $state"
    before=$state
  fi
  case $state in
    ACTIVE)
      exit 0
      ;;
    NONE | FAILED | SUSPENDING | SUSPENDED | DELETING)
      say "nothing to wait for; create_queued.sh asks again"
      exit 1
      ;;
  esac
  QUIET=1
  pause "$POLL_SECONDS"
done
