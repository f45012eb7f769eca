#!/usr/bin/env bash
# On a TPU VM: Python 3.11 of its own, and the package with its TPU extra.
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
