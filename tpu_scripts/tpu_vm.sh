#!/usr/bin/env bash
# tpu_vm.sh up | run COMMAND... | log | stop | down: a TPU slice with gcloud alone.
#   up    requests the slice, waits for it, copies the commit at HEAD, installs
#         and mounts the bucket as /bucket
#   run   starts COMMAND detached on every host, one at a time
#   log   last lines of every host     stop   SIGTERM to the command: a checkpoint is saved
#   down  deletes slice and request; the bucket stays
# Each may be run again. A slice that was taken away: down, up, and the same run.
# Settings: PROJECT, ZONE and BUCKET (without gs://), and those below.
set -euo pipefail
: "${TPU_NAME:=jaxcontam}" "${ACCELERATOR_TYPE:=v5litepod-64}" "${SPOT:=1}"
case $ACCELERATOR_TYPE in
  v4-*) usual=tpu-ubuntu2204-base ;;
  v5litepod-*) usual=v2-alpha-tpuv5-lite ;;
  v5p-*) usual=v2-alpha-tpuv5 ;;
  *) usual=v2-alpha-tpuv6e ;;
esac
: "${RUNTIME_VERSION:=$usual}"
for name in PROJECT ZONE BUCKET; do
  if [ -z "${!name:-}" ]; then
    echo "tpu_vm.sh: error: $name is not set" >&2
    exit 2
  fi
done
at=(--project="$PROJECT" --zone="$ZONE")
root=$(cd "$(dirname "$0")/.." && pwd)

on_hosts() {
  gcloud compute tpus tpu-vm ssh "$TPU_NAME" "${at[@]}" --worker=all --quiet --command="$1"
}

# state: of the request, empty where there is none.
state() {
  gcloud compute tpus queued-resources describe "$TPU_NAME" "${at[@]}" \
    --format="value(state.state)" 2>/dev/null || true
}

up() {
  local now spot=() tree
  if [ -z "$(state)" ]; then
    if [ "$SPOT" = 1 ]; then spot=(--spot); fi
    gcloud compute tpus queued-resources create "$TPU_NAME" "${at[@]}" \
      --node-id="$TPU_NAME" --accelerator-type="$ACCELERATOR_TYPE" \
      --runtime-version="$RUNTIME_VERSION" "${spot[@]}" \
      --scopes=https://www.googleapis.com/auth/cloud-platform
  fi
  until now=$(state) && [ "$now" = ACTIVE ]; do
    echo "$TPU_NAME: ${now:-unknown}" >&2
    case $now in FAILED | SUSPENDED) exit 75 ;; esac
    sleep 30
  done
  tree=$(mktemp)
  git -C "$root" archive --format=tar.gz --output="$tree" HEAD
  gcloud compute tpus tpu-vm scp "$tree" "$TPU_NAME:jaxcontam.tar.gz" "${at[@]}" \
    --worker=all --quiet
  rm -f "$tree"
  on_hosts "set -e
    mkdir -p jaxcontam && tar -xzf jaxcontam.tar.gz -C jaxcontam
    python3 -m pip install --user --quiet uv
    ~/.local/bin/uv venv --allow-existing --python 3.11 venv
    ~/.local/bin/uv pip install --python venv/bin/python \
      -c jaxcontam/constraints.txt -e './jaxcontam[tpu]'
    if mountpoint -q /bucket; then exit; fi
    source=https://packages.cloud.google.com/apt key=/usr/share/keyrings/cloud.google.asc
    curl -fsS \$source/doc/apt-key.gpg | sudo tee \$key >/dev/null
    echo \"deb [signed-by=\$key] \$source gcsfuse-\$(lsb_release -cs) main\" |
      sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
    sudo apt-get update -q && sudo apt-get install -yq gcsfuse
    sudo mkdir -p /bucket && sudo chown \$USER /bucket
    gcsfuse --implicit-dirs $BUCKET /bucket"
}

run() {
  local version words
  version=$(git -C "$root" rev-parse HEAD)
  printf -v words '%q ' env "BUCKET=$BUCKET" "CODE_VERSION=$version" "$@"
  on_hosts "cd jaxcontam || exit
    if kill -0 \$(cat ~/pid 2>/dev/null) 2>/dev/null; then echo runs already; exit; fi
    PATH=~/venv/bin:\$PATH nohup setsid $words >>~/log 2>&1 </dev/null & echo \$! >~/pid"
}

case ${1:-} in
  up) up ;;
  run)
    shift
    run "$@"
    ;;
  log) on_hosts 'tail -n 3 ~/log; kill -0 $(cat ~/pid) 2>/dev/null || echo ended' ;;
  stop) on_hosts 'kill -TERM $(cat ~/pid)' ;;
  down) gcloud compute tpus queued-resources delete "$TPU_NAME" "${at[@]}" --force --quiet ;;
  *)
    echo "usage: tpu_vm.sh up | run COMMAND... | log | stop | down" >&2
    exit 2
    ;;
esac
