#!/usr/bin/env bash
# detached.sh FOLDER URL COMMAND...: what start.sh leaves behind, the command under
# supervision. Log and reports go to the bucket, then the exit code to a file: whoever
# reads the code may delete the TPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
url=$2
shift 2

save_log() {
  if [ -n "$url" ] && command -v gcloud >/dev/null; then
    gcloud storage cp "$folder/log" "$url/logs/$(hostname).log" >/dev/null 2>&1
  fi
}

echo "=== $(date -u '+%Y-%m-%d %H:%M:%S') UTC: $(cat "$folder/command")"
if [ -f "$HOME/venv/bin/activate" ]; then
  # shellcheck disable=SC1091
  . "$HOME/venv/bin/activate"
fi
cd "$here/../.." || exit 1

# A shutdown signals every process of the VM: this one must live to write the code.
trap : TERM
(
  trap 'kill "$!"; exit 0' TERM
  exec 9>&-
  while true; do
    sleep 300 &
    wait $!
    save_log
  done
) &
keeper=$!

bash "$here/supervise.sh" "$@" &
child=$!
echo "$child" >"$folder/pid"
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
kill "$keeper" 2>/dev/null
echo "=== exit code $code"
if [ -n "$url" ] && [ -d runs ]; then
  python "$here/save_reports.py" runs "$url/out/$(hostname)" || echo "reports not saved"
fi
save_log
echo "$code" >"$folder/code.partial"
mv "$folder/code.partial" "$folder/code"
