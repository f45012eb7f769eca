# shellcheck shell=bash
# Sourced by the scripts of GKE: what is there under RUN_NAME.

# make_room: goes on where the run is not there or has ended; ends the script where it
# still runs. What ended keeps its name until it is deleted.
make_room() {
  local ask state
  ask=(kubectl get jobset "$RUN_NAME" --ignore-not-found
    "--output=jsonpath={.metadata.name} {.status.terminalState}")
  show "${ask[@]}"
  if [ "$DRY_RUN" = 1 ]; then
    return
  fi
  state=$("${ask[@]}")
  case ${state## } in
    "") ;;
    *Completed | *Failed)
      say "$RUN_NAME ended (${state##* }): deleting it, to start anew"
      run kubectl delete jobset "$RUN_NAME" --ignore-not-found
      ;;
    *)
      say "$RUN_NAME runs already: gke_status.sh, gke_logs.sh, gke_delete.sh"
      exit 0
      ;;
  esac
}
