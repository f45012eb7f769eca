#!/usr/bin/env bash
# state.sh [RUN]: a line on the command (of RUN, or the last one), and the last line of
# its log, in a form that run_all.sh reads.
set -euo pipefail
current=$(cat "$HOME/runs/current" 2>/dev/null || true)
name=${1:-$current}
folder=$HOME/runs/$name
# The last part of a TPU VM's name is its number: t1v-n-0a1b2c3d-w-0.
worker=${WORKER:-$(hostname | sed 's/.*-//')}

if [ ! -f "$folder/command" ]; then
  state=absent
elif [ -f "$folder/code" ]; then
  state="exited $(cat "$folder/code")"
elif [ "$name" != "$current" ] || flock --nonblock "$HOME/runs/lock" true; then
  # Nobody holds the lock. It may have ended between the two looks, and writes its code
  # before it lets go; without a code it was killed, as by a restart of the VM.
  state="exited $(cat "$folder/code" 2>/dev/null || echo 137)"
else
  state=running
fi
echo "jaxcontam-run $worker $state"
if [ -f "$folder/log" ]; then
  last=$(tail -c 2000 "$folder/log" | tr '\r' '\n' | grep . | tail -n 1 | cut -c 1-160)
  echo "jaxcontam-log $worker $last"
fi
