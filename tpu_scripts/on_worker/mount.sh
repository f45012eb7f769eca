#!/usr/bin/env bash
# mount.sh BUCKET: shows a bucket as /mnt/jaxcontam, for reading.
set -euo pipefail
folder=/mnt/jaxcontam

if mountpoint --quiet "$folder"; then
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
