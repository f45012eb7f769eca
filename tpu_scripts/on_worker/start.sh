#!/usr/bin/env bash
# start.sh RUN URL COMMAND...: starts a command that outlives the connection; its log
# goes to ~/runs/RUN/log and, every five minutes, to URL (gs://..., or empty).
# One command at a time has the TPU, and none starts twice: gcloud repeats a command
# whose connection broke.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1
url=$2
shift 2
folder=$HOME/runs/$name
mkdir -p "$folder"
words=$(printf '%q ' "$@")

# Held by all that the command starts: a process left behind would hold the TPU, too.
# Not given up at once: state.sh takes the lock for a moment, to see whether it is held.
exec 9>"$HOME/runs/lock"
if ! flock --wait 0.3 9; then
  current=$(cat "$HOME/runs/current" 2>/dev/null || true)
  if [ "$current" != "$name" ] ||
    [ "$(cat "$folder/command" 2>/dev/null)" != "$words" ]; then
    echo "another command runs: $current: $(cat "$HOME/runs/$current/command")" >&2
    exit 1
  fi
  if [ -f "$folder/code" ]; then
    echo "$name ended, but left a process behind" >&2
    exit 1
  fi
  echo "$name runs already"
  exit 0
fi
printf '%s\n' "$name" >"$HOME/runs/current"
printf '%s\n' "$words" >"$folder/command"
rm -f "$folder/code" "$folder/pid"

setsid bash "$here/detached.sh" "$folder" "$url" "$@" </dev/null >>"$folder/log" 2>&1 &
echo "$name started"
