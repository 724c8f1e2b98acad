#!/bin/bash
# The Python environment of the toolchain; the first remedy: one install at a time.
set -euo pipefail

lock="${TMPDIR:-/tmp}/uv-install-$USER.lock"

uv venv --quiet --allow-existing build/venv
if ! flock "$lock" uv pip install --python build/venv -r toolchain/requirements.txt; then
  echo "Installation failed"
  exit 1
fi
echo "Toolchain installed"
