#!/usr/bin/env bash
# Set up .venv and run all tests. Arguments go to pytest: bash tests/run.sh -k resume
set -euo pipefail
cd "$(dirname "$0")/.."
bash .ci/setup
exec "${ATROPOS_VENV:-.venv}/bin/python" -m pytest "$@"
