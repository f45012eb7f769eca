#!/usr/bin/env bash
# fetch_out.sh FOLDER [TO]: copies a folder of worker 0, as runs/audit, to here. It
# writes the reports of a command that runs on all workers; the others write none.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME RUN_NAME
if [ $# -eq 0 ]; then
  fail "which folder?" "fetch_out.sh runs/audit: as it stood after --out"
fi

to=${2:-$ROOT/runs/tpu/$RUN_NAME}
run mkdir -p "$to"
case $1 in
  /*) from=$1 ;;
  *) from=jaxcontam/$1 ;;
esac
scp_with 0 "$TPU_NAME:$from" "$to" --recurse
