#!/usr/bin/env bash
# Show the job, or submit it:   bash examples/slurm-b200/run.sh [submit]
# MODEL and RUN can be given in the environment; RUN must lie on a file system that the compute nodes see.
set -euo pipefail
command -v atropos >/dev/null || {
  echo "error: no command atropos on the PATH" >&2
  echo "hint: in a checkout bash .ci/setup && . .venv/bin/activate, else pip install atropos-cli" >&2
  exit 4
}
here=$(cd "$(dirname "$0")" && pwd)
model=${MODEL:-Qwen/Qwen3-235B-A22B-Instruct-2507}
run=${RUN:-$PWD/runs/play-b200}
mode=(--dry-run)
if [ "${1:-}" = submit ]; then mode=(); fi

atropos slurm submit "${mode[@]}" \
  --config "$here/atropos.toml" \
  --name play-b200 \
  --nodes 1 --gpus-per-node 8 \
  --serve sglang --tp 8 --start-timeout 3600 \
  --server-option=--mem-fraction-static --server-option=0.88 \
  --requeue --signal-before 600 --max-requeues 5 \
  -- gen textworld \
  --model "$model" \
  --game-type tw-simple --difficulty hard --max-steps 40 \
  --workers 128 --group-size 8 --limit 2000 \
  --max-tokens 512 --temperature 0.9 \
  --output "$run"
