#!/usr/bin/env bash
# supervise.sh COMMAND...: runs it and ends with its exit code, except that a command
# that SIGTERM ended well is not done: 143 in place of 0. Training exits 0 once its
# checkpoint is saved; a queue that reads 0 would never start it again.
set -uo pipefail
asked=0
child=
# shellcheck disable=SC2317
stop() {
  asked=1
  if [ -n "$child" ]; then kill -TERM "$child" 2>/dev/null; fi
}
trap stop TERM

"$@" &
child=$!
if [ "$asked" = 1 ]; then stop; fi
code=0
wait "$child" || code=$?
# A trap ends `wait` before the command has ended.
while kill -0 "$child" 2>/dev/null; do
  code=0
  wait "$child" || code=$?
done
if [ "$asked" = 1 ] && [ "$code" = 0 ]; then
  code=143
fi
exit "$code"
