#!/usr/bin/env bash
# From a fresh checkout to a model that has learnt something: set up .venv, let a small real model play text adventures,
# train it on sums, and show both. Needs Python >= 3.11 and nothing else; no GPU, no server, no account.
#
#     bash examples/first-rollouts/run.sh             the results go to runs/first-rollouts
#     bash examples/first-rollouts/run.sh FOLDER      ... to another folder
#
# The model is SmolLM2 with 135 million parameters. It plays like one; its rewards differ, and that is what is needed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
bash "$root/.ci/setup"
venv=${ATROPOS_TEST_VENV:-.venv}
case $venv in /*) ;; *) venv=$root/$venv ;; esac
out=${1:-$root/runs/first-rollouts}
# Two threads that wait for each other cost more than they bring, as soon as anything else runs.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Each reply is one of the commands that the game allows: by itself a model of this size writes few that exist.
"$venv/bin/atropos" gen textworld --model smollm2 --pick-from-admissible \
  --game-type tw-simple --difficulty easy --max-steps "${TURNS:-8}" --temperature 1.5 \
  --limit 4 --group-size 4 --output "$out/play" --overwrite

# Ten steps of GRPO on sums of one digit, judged before and after on sums that were not trained on.
"$venv/bin/atropos" train grpo --model smollm2 --env arithmetic --env.kind add --env.prompt-style plain \
  --backend.chat-template plain --max-tokens 4 --stop $'\n' --group-size 4 --prompts-per-step 8 \
  --algorithm dr_grpo --learning-rate 1e-5 --steps "${STEPS:-10}" --eval arithmetic:limit=40 \
  --output "$out/train" --overwrite

"$venv/bin/python" "$here/show.py" "$out"
