#!/usr/bin/env bash
# Check an environment of one's own, and play it without a model. Needs `atropos` on the PATH.
#
#     bash examples/custom-environment/run.sh [RUN]
set -euo pipefail
command -v atropos >/dev/null || {
  echo "error: no command atropos on the PATH" >&2
  echo "hint: in a checkout bash .ci/setup && . .venv/bin/activate, else pip install atropos-cli" >&2
  exit 4
}
here=$(cd "$(dirname "$0")" && pwd)
run=${1:-runs/guess}

atropos env check "$here/guess.py:Guess"
atropos gen "$here/guess.py:Guess" \
  --backend scripted --backend.function "$here/player.py:reply" \
  --largest 100 --limit 20 --group-size 2 \
  --output "$run" --overwrite
