# shellcheck shell=bash disable=SC2034
# Sourced by every script of this folder: settings, printed commands, the request's state.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(dirname "$HERE")
ME="tpu_scripts/$(basename "$0")"

env_file=${JAXCONTAM_TPU_ENV:-$HERE/env}
if [ -f "$env_file" ]; then
  # shellcheck source=env.example
  . "$env_file"
fi
DRY_RUN=${DRY_RUN:-0}
POLL_SECONDS=${POLL_SECONDS:-30}

# Where a worker keeps the checkout; its login shell expands the tilde, not this one.
# shellcheck disable=SC2088
WORKER_SCRIPTS="~/jaxcontam/tpu_scripts/on_worker"

say() {
  printf '%s: %s\n' "$ME" "$*" >&2
}

# fail MESSAGE [HINT]: for what the user can set right; exit code 2, as of jaxcontam.
fail() {
  printf '%s: error: %s\n' "$ME" "$1" >&2
  if [ $# -gt 1 ]; then
    printf '  hint: %s\n' "$2" >&2
  fi
  exit 2
}

# need NAME...: settings without which nothing is tried.
need() {
  local name
  for name in "$@"; do
    if [ -z "${!name:-}" ]; then
      fail "$name is not set" "cp tpu_scripts/env.example tpu_scripts/env, and fill it in"
    fi
  done
}

# quoted WORD...: one line that a shell reads back as these words.
quoted() {
  local line
  printf -v line '%q ' "$@"
  printf '%s' "${line% }"
}

# QUIET=1 is for loops, which print what they ask once.
show() {
  if [ "${QUIET:-0}" != 1 ]; then
    printf '+ %s\n' "$(quoted "$@")" >&2
  fi
}

# run COMMAND...: print it, then do it, unless DRY_RUN=1.
run() {
  show "$@"
  if [ "$DRY_RUN" != 1 ]; then
    "$@"
  fi
}

# The run's place in the bucket: checkpoints, model and logs.
run_url() {
  need BUCKET RUN_NAME
  printf 'gs://%s/%s' "${BUCKET#gs://}" "$RUN_NAME"
}

# code_version: the commit of this checkout and a digest of its edits, in the form that
# train/run_folder.py has; empty where there is no commit. A copy has no .git to ask.
code_version() {
  local commit edits
  if ! commit=$(git -C "$ROOT" rev-parse --verify --quiet HEAD); then
    return 0
  fi
  printf '%s' "$commit"
  if ! git -C "$ROOT" diff --quiet HEAD; then
    edits=$(git -C "$ROOT" diff HEAD | sha256sum)
    printf '+%s' "${edits:0:8}"
  fi
}

# check_type: the type, its zone and its runtime against each other, before anything is
# asked for; sets RUNTIME_VERSION where it is empty, and N_WORKERS, the type's hosts.
# Runtimes are those of https://cloud.google.com/tpu/docs/runtimes. The number of a v4 or
# v5p type counts cores, two a chip, that of the others chips; a VM has four chips, and
# slices of v5e and v6e with up to eight are one. None of it was tried on a TPU.
check_type() {
  local kind=${ACCELERATOR_TYPE%%-*} number=${ACCELERATOR_TYPE##*-} usual fits
  if ! [[ $number =~ ^[1-9][0-9]*$ ]]; then
    number=0
  fi
  case $kind in
    v4) usual=tpu-ubuntu2204-base fits='tpu-*' N_WORKERS=$(((number + 7) / 8)) ;;
    v5p) usual=v2-alpha-tpuv5 fits='*tpuv5' N_WORKERS=$(((number + 7) / 8)) ;;
    v5litepod) usual=v2-alpha-tpuv5-lite fits='*tpuv5-lite*' N_WORKERS=$((number / 4)) ;;
    v6e) usual=v2-alpha-tpuv6e fits='*tpuv6e*' N_WORKERS=$((number / 4)) ;;
    *) number=0 ;;
  esac
  if [ "$number" = 0 ]; then
    fail "ACCELERATOR_TYPE=$ACCELERATOR_TYPE is no type" \
      "such as v4-8, v5litepod-64, v5p-8 or v6e-8"
  fi
  if [[ $kind = v5litepod || $kind = v6e ]] && [ "$number" -le 8 ]; then
    N_WORKERS=1
  fi
  RUNTIME_VERSION=${RUNTIME_VERSION:-$usual}
  # shellcheck disable=SC2053
  if [[ $RUNTIME_VERSION != $fits ]]; then
    fail "RUNTIME_VERSION=$RUNTIME_VERSION is not for $ACCELERATOR_TYPE" \
      "leave it empty, for $usual"
  fi
  # v4 is in one zone, which has nothing else.
  if [ "$kind" = v4 ] && [ "$ZONE" != us-central2-b ]; then
    fail "ZONE=$ZONE has no v4" "ZONE=us-central2-b"
  fi
  if [ "$kind" != v4 ] && [ "$ZONE" = us-central2-b ]; then
    fail "ZONE=$ZONE has v4 alone, not $ACCELERATOR_TYPE" \
      "gcloud compute tpus accelerator-types list --zone=ZONE shows what a zone has"
  fi
}

# request_state PRESUMED: state of the queued resource, or NONE where there is none.
# A dry run asks nobody and presumes.
request_state() {
  local ask errors state
  ask=(gcloud compute tpus queued-resources describe "$TPU_NAME"
    --project="$PROJECT" --zone="$ZONE" "--format=value(state.state)")
  show "${ask[@]}"
  if [ "$DRY_RUN" = 1 ]; then
    printf '%s' "$1"
    return
  fi
  errors=$(mktemp)
  if state=$("${ask[@]}" 2>"$errors"); then
    rm -f "$errors"
    printf '%s' "${state:-CREATING}"
  elif grep -q NOT_FOUND "$errors"; then
    rm -f "$errors"
    printf 'NONE'
  else
    cat "$errors" >&2
    rm -f "$errors"
    return 1
  fi
}

# on_workers LINE: a line for the login shell of every worker, which gcloud starts
# together and waits for; its exit code is 0 only if all of theirs were.
on_workers() {
  local flags=()
  if [ "${INTERNAL_IPS:-0}" = 1 ]; then
    flags=(--internal-ip)
  fi
  # --quiet: a first ssh would ask for a passphrase, and nobody may be there.
  run gcloud compute tpus tpu-vm ssh "$TPU_NAME" \
    --project="$PROJECT" --zone="$ZONE" --worker=all --quiet \
    "${flags[@]}" --command="$1"
}

# scp_with WORKER FROM TO [FLAG...]: WORKER is a number or all.
scp_with() {
  local worker=$1
  shift
  if [ "${INTERNAL_IPS:-0}" = 1 ]; then
    set -- "$@" --internal-ip
  fi
  run gcloud compute tpus tpu-vm scp "$@" \
    --project="$PROJECT" --zone="$ZONE" --worker="$worker" --quiet
}

# A pause that Ctrl-C and SIGTERM end at once: bash runs a trap only between commands,
# and `wait` is the one that a signal interrupts.
pause() {
  sleep "$1" &
  pausing=$!
  trap 'kill "$pausing" 2>/dev/null || true' EXIT
  wait "$pausing"
  trap - EXIT
}
