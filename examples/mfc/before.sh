#!/bin/bash
# The Python environment of the toolchain.
set -euo pipefail

uv venv --quiet --allow-existing build/venv
if ! uv pip install --python build/venv -r toolchain/requirements.txt; then
  echo "Installation failed"
  exit 1
fi
echo "Toolchain installed"
