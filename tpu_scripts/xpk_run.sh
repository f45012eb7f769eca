#!/usr/bin/env bash
# xpk_run.sh COMMAND...: runs a command on a TPU slice of a cluster that XPK made. Again:
# does nothing while it runs, and starts anew where it ended.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE CLUSTER RUN_NAME BUCKET IMAGE ACCELERATOR_TYPE MAX_RESTARTS
if [ $# -eq 0 ]; then
  fail "which command?" "xpk_run.sh python -m train.pretrain ... --distributed"
fi
. "$HERE/gke.sh"
make_room

# Kubernetes makes $ of $$, and of $(NAME) what the pod's environment has. Quoted words
# have a bare $ in $'...' alone, where 044 is its number.
words=
for word in "$@"; do
  word=$(quoted "$word")
  inner=${word:2}
  if [ "${word:0:2}" = "\$'" ]; then word="\$'${inner//\$/\\044}"; fi
  words+=" $word"
done

# XPK restarts after 42 and 127 to 255 alone (143 is a preempted host, 134 what the others
# end with when one is lost); 1 and 3 may pass, too. 2, bad input, is not tried again.
command=(xpk workload create
  --project="$PROJECT" --zone="$ZONE" --cluster="$CLUSTER" --workload="$RUN_NAME"
  --tpu-type="$ACCELERATOR_TYPE" --num-slices=1 --docker-image="$IMAGE"
  --max-restarts="$MAX_RESTARTS" --restart-on-exit-codes="1,3"
  --termination-grace-period-seconds=120
  --command="RUN_URL=$(quoted "$(run_url)") bash /app/tpu_scripts/on_worker/in_pod.sh$words")
if [ -n "${XPK_STORAGE:-}" ]; then
  command+=(--storage="$XPK_STORAGE")
fi
run "${command[@]}"
