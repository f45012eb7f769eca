#!/usr/bin/env bash
# setup.sh BUCKET, on a TPU VM: installs Python 3.11 and the package with its TPU extra,
# and mounts the bucket (if not empty) read-only as /mnt/jaxcontam.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
export PATH="$HOME/.local/bin:$PATH"

if ! command -v uv >/dev/null; then
  python3 -m pip install --user --quiet uv
fi
# constraints.txt is for Python 3.11, and the image's Python is another.
if [ ! -x "$HOME/venv/bin/python" ]; then
  uv venv --python 3.11 "$HOME/venv"
fi
# The extra brings the TPU library and gcsfs, which (with Google's storage client that
# comes with it) checkpoints in gs:// need.
uv pip install --python "$HOME/venv/bin/python" \
  -c "$root/constraints.txt" -e "${root}[tpu]"

folder=/mnt/jaxcontam
if [ -z "$1" ] || mountpoint --quiet "$folder"; then
  exit 0
fi
if ! command -v gcsfuse >/dev/null; then
  source=https://packages.cloud.google.com/apt
  key=/usr/share/keyrings/cloud.google.asc
  curl --fail --silent --show-error "$source/doc/apt-key.gpg" |
    sudo tee "$key" >/dev/null
  echo "deb [signed-by=$key] $source gcsfuse-$(lsb_release -c -s) main" |
    sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
  sudo apt-get update --quiet
  sudo apt-get install --yes --quiet gcsfuse
fi
sudo mkdir -p "$folder"
sudo chown "$(id -u):$(id -g)" "$folder"
# Folders of a bucket are names with slashes: --implicit-dirs shows them all.
gcsfuse --implicit-dirs -o ro "$1" "$folder"
