#!/usr/bin/env bash
# Fetches the log of each pod to runs/tpu/RUN_NAME/logs. Pods that are gone: Cloud
# Logging still has them.
. "$(dirname "$0")/common.sh"
need RUN_NAME

folder=${LOGS:-$ROOT/runs/tpu/$RUN_NAME/logs}
run mkdir -p "$folder"
ask=(kubectl get pods --selector="jobset.sigs.k8s.io/jobset-name=$RUN_NAME"
  --output=name)
show "${ask[@]}"
if [ "$DRY_RUN" = 1 ]; then
  exit 0
fi
for pod in $("${ask[@]}"); do
  show kubectl logs "$pod" --container=jaxcontam
  # XPK names the container otherwise; it is the pod's first.
  kubectl logs "$pod" --container=jaxcontam >"$folder/${pod#pod/}.log" 2>/dev/null ||
    kubectl logs "$pod" >"$folder/${pod#pod/}.log" ||
    say "no log of $pod"
done
say "logs: $folder"
