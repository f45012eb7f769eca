#!/usr/bin/env bash
# in_pod.sh COMMAND...: in a container of GKE. A pod's disk goes with it, so the reports
# of the host that writes them go to RUN_URL/out, if that is set.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.." || exit 1

child=
trap 'kill -TERM "$child" 2>/dev/null' TERM
bash "$here/supervise.sh" "$@" &
child=$!
code=0
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
if [ -n "${RUN_URL:-}" ] && [ "${TPU_WORKER_ID:-0}" = 0 ] && [ -d runs ]; then
  python "$here/save_reports.py" runs "$RUN_URL/out" || echo "reports not saved" >&2
fi
exit "$code"
