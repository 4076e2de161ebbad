#!/usr/bin/env bash
# From a fresh checkout to scored rollouts: set up .venv, let a small real model play text adventures, show what
# came out. Needs Python >= 3.11 and nothing else; no GPU, no server, no account.
#
#     bash examples/first-rollouts/run.sh             the run goes to runs/first-rollouts
#     bash examples/first-rollouts/run.sh RUN         ... to another folder
#
# The model is SmolLM2 with 135 million parameters. It plays like one: expect comedy rather than victories.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bash "$root/.ci/setup"
venv=${ATROPOS_TEST_VENV:-.venv}
case $venv in /*) ;; *) venv=$root/$venv ;; esac
run=${1:-$root/runs/first-rollouts}

"$venv/bin/atropos" gen textworld \
  --model smollm2 \
  --game-type tw-simple --difficulty easy --show-commands --max-steps 5 \
  --limit 3 --group-size 4 \
  --max-tokens 16 --stop $'\n' --temperature 0.8 \
  --output "$run" --overwrite

"$venv/bin/python" "$here/show.py" "$run"
