#!/usr/bin/env bash
# Requests the TPU and waits until it is ready. Again: waits for the request that is
# there, and replaces one that failed or lost its TPU. Exit code 75: a request made now
# failed, as when VALID_UNTIL is over.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME ACCELERATOR_TYPE
check_type
if [ "${SPOT:-0}" = 1 ] && [ "${RESERVED:-0}" = 1 ]; then
  fail "SPOT=1 and RESERVED=1 exclude each other"
fi

# The scope lets the VMs write to the bucket; the account's roles decide whether.
create() {
  local command
  command=(gcloud compute tpus queued-resources create "$TPU_NAME"
    --project="$PROJECT" --zone="$ZONE" --node-id="$TPU_NAME"
    --accelerator-type="$ACCELERATOR_TYPE" --runtime-version="$RUNTIME_VERSION"
    --scopes=https://www.googleapis.com/auth/cloud-platform)
  if [ "${SPOT:-0}" = 1 ]; then
    command+=(--spot)
  fi
  if [ "${RESERVED:-0}" = 1 ]; then
    command+=(--reserved)
  fi
  if [ "${INTERNAL_IPS:-0}" = 1 ]; then
    command+=(--internal-ips)
  fi
  if [ -n "${VALID_UNTIL:-}" ]; then
    command+=(--valid-until-duration="$VALID_UNTIL")
  fi
  if [ -n "${SERVICE_ACCOUNT:-}" ]; then
    command+=(--service-account="$SERVICE_ACCOUNT")
  fi
  run "${command[@]}"
}

before=
while true; do
  state=$(request_state "${presumed:-NONE}")
  if [ "$state" != "$before" ]; then
    say "$TPU_NAME is $state"
    before=$state
  fi
  case $state in
    ACTIVE)
      exit 0
      ;;
    NONE)
      create
      presumed=ACTIVE # what a dry run finds next
      ;;
    FAILED | SUSPENDED)
      if [ "${presumed:-}" = ACTIVE ]; then
        say "the request is $state; the same line asks again"
        exit 75
      fi
      # It holds its name but no TPU, and is never served again.
      run gcloud compute tpus queued-resources delete "$TPU_NAME" \
        --project="$PROJECT" --zone="$ZONE" --force --quiet
      ;;
    *)
      QUIET=1
      pause "$POLL_SECONDS"
      QUIET=0
      ;;
  esac
done
