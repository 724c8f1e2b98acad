#!/bin/bash
# The Python environment of the toolchain; the second remedy: a lock that is looked after, and a clean cache after a failure.
set -euo pipefail

locks="${TMPDIR:-/tmp}"
if [ ! -d "$locks" ] || [ ! -w "$locks" ]; then
  locks="$HOME"
fi

install() {
  flock "$locks/uv-install-$USER.lock" uv pip install --python build/venv -r toolchain/requirements.txt
}

uv venv --quiet --allow-existing build/venv
if ! install; then
  echo "Cleaning the cache, trying once more"
  uv cache clean || true
  if ! install; then
    echo "Installation failed"
    exit 1
  fi
fi
echo "Toolchain installed"
