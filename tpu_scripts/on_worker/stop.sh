#!/usr/bin/env bash
# stop.sh RUN: SIGTERM to the command; training saves a checkpoint first.
set -euo pipefail
folder=$HOME/runs/$1
if [ -f "$folder/pid" ] && [ ! -f "$folder/code" ]; then
  kill -TERM "$(cat "$folder/pid")" && echo "$1: asked to end"
else
  echo "$1: nothing runs"
fi
