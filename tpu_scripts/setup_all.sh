#!/usr/bin/env bash
# Copies this working tree (what git does not ignore, edits included) to every worker,
# installs Python, and mounts the bucket read-only as /mnt/jaxcontam. Again: replaces the
# files and installs what changed. The first command, which asks what runs, fails where
# nothing was ever set up; that is no fault.
. "$(dirname "$0")/common.sh"
need PROJECT ZONE TPU_NAME
if [ ! -e "$ROOT/.git" ]; then
  fail "$ROOT is no git checkout" "what git does not ignore is copied; git init will do"
fi

# Not under a command that runs: it would read half of the new files, and the TPU is
# its own.
answer=$(on_workers "bash $WORKER_SCRIPTS/state.sh" || true)
if grep -q '^jaxcontam-run .* running$' <<<"$answer"; then
  say "a command runs: nothing set up"
  exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/jaxcontam.tar.gz
# By it a worker knows its own code, so that a finished run is not trained again.
code_version >"$work/code-version.txt"
say "packing $ROOT"
# Files that were deleted but not yet committed are listed by git and cannot be packed.
(cd "$ROOT" && git ls-files -z --cached --others --exclude-standard |
  while IFS= read -r -d '' file; do
    if [ -e "$file" ]; then printf '%s\0' "$file"; fi
  done | tar --null --files-from=- -czf "$tree" --directory="$work" code-version.txt)

scp_with all "$tree" "$TPU_NAME:"
on_workers "mkdir -p ~/jaxcontam && tar -xzf ~/jaxcontam.tar.gz -C ~/jaxcontam && bash $WORKER_SCRIPTS/setup.sh $(quoted "${BUCKET#gs://}")"
# All together: a slice starts only when each of its hosts does.
on_workers "bash $WORKER_SCRIPTS/devices.sh"
