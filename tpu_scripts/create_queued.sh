#!/usr/bin/env bash
# Asks for the TPU. Again: does nothing where it is asked for already, and asks anew
# where the old request failed or lost its TPU.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME ACCELERATOR_TYPE RUNTIME_VERSION
if [ "${SPOT:-0}" = 1 ] && [ "${RESERVED:-0}" = 1 ]; then
  fail "SPOT=1 and RESERVED=1 exclude each other"
fi

while true; do
  state=$(request_state NONE)
  case $state in
    NONE)
      break
      ;;
    FAILED | SUSPENDED)
      # It holds no TPU any more, but its name, and it is never served again.
      say "the request is $state: deleting it, to ask again"
      run gcloud compute tpus queued-resources delete "$TPU_NAME" \
        --project="$PROJECT" --zone="$ZONE" --force --quiet
      ;;
    SUSPENDING | DELETING)
      say "the old request is $state"
      pause "$POLL_SECONDS"
      ;;
    *)
      say "asked for already: $TPU_NAME is $state"
      exit 0
      ;;
  esac
done

# The scope lets the VMs write to the bucket; the account's roles decide whether.
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
if [ -n "${VALID_UNTIL:-}" ]; then
  command+=(--valid-until-duration="$VALID_UNTIL")
fi
if [ -n "${SERVICE_ACCOUNT:-}" ]; then
  command+=(--service-account="$SERVICE_ACCOUNT")
fi
run "${command[@]}"
