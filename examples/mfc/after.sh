#!/bin/bash
# The Python environment of the toolchain.
set -euo pipefail

# Where Ondol is not installed, or needs a newer Python, the command runs as it did.
guard() {
  if command -v ondol > /dev/null; then ondol guard -- "$@"; else "$@"; fi
}

uv venv --quiet --allow-existing build/venv
if ! guard uv pip install --python build/venv -r toolchain/requirements.txt; then
  echo "Installation failed"
  exit 1
fi
echo "Toolchain installed"
