#!/usr/bin/env bash
# Rejection sampling in five commands: sample, keep what is right, make rows, fine-tune, evaluate before and after.
# Needs `atropos` on the PATH with atropos-arithmetic, atropos-local[torch] and atropos-trl[train]; no GPU.
#
#     bash examples/train-on-rollouts/run.sh [FOLDER]        about 80 CPU seconds and 3 GB
set -euo pipefail
command -v atropos >/dev/null || {
  echo "error: no command atropos on the PATH" >&2
  echo "hint: in a checkout bash .ci/setup && . .venv/bin/activate, else pip install atropos-cli" >&2
  exit 4
}
out=${1:-runs/train-on-rollouts}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
sums=(--kind add --prompt-style plain)
model=(--backend.chat-template plain --max-tokens 4 --stop $'\n')

atropos gen arithmetic "${sums[@]}" --model smollm2 "${model[@]}" \
  --limit "${LIMIT:-60}" --group-size 4 --output "$out/rollouts" --overwrite
atropos filter "$out/rollouts" --where 'score == 1' --output "$out/right.jsonl" --overwrite
atropos sft-gen "$out/right.jsonl" --format tokens --select all --keep-truncated --output "$out/rows.jsonl" --overwrite
atropos train sft --data "$out/rows.jsonl" --model smollm2 \
  --steps "${STEPS:-8}" --prompts-per-step 8 --learning-rate 2e-5 --output "$out/sft" --overwrite
for trained in smollm2 "$out/sft/model"; do
  atropos eval arithmetic "${sums[@]}" --model "$trained" "${model[@]}" \
    --split test --limit 40 --temperature 0 --output "$out/eval-$(basename "$trained")" --overwrite
done
