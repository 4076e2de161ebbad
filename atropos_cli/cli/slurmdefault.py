"""What `atropos slurm submit` submits when it is given no command: what the folder describes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from atropos_cli.errors import UsageError

_CPU = (
    "atropos slurm submit --time 1h -- gen textworld --limit 100 --output runs/play",
    "atropos slurm submit --time 2h -- train grpo --output runs/learn",
)
_ARRAY = "atropos slurm submit --array 4 --time 1h -- gen textworld --limit 1000 --output runs/wide"
_GPU = (
    "atropos slurm submit --gpus-per-node 1 --time 4h --serve vllm --model MODEL -- gen textworld --output runs/play",
    "atropos slurm submit --gpus-per-node 1 --time 8h -- train grpo --env textworld --model MODEL --output runs/learn",
)
_PIPELINE = "pipeline.toml"
_PLAN = "plan.json"


def described_command(config: Path | None) -> list[str]:
    """[slurm] command of the configuration, else pipeline.toml, else plan.json of this folder.

    Raises UsageError with examples that fit this cluster when there is none of them.
    """
    from atropos_cli.config.slurm import slurm_command

    text = slurm_command(config)
    if text is not None:
        try:
            return shlex.split(text)
        except ValueError as error:
            raise UsageError(f"[slurm] command: {error}", hint="write it as on the command line") from error
    if Path(_PIPELINE).is_file():
        return [_PIPELINE]
    if Path(_PLAN).is_file():
        return ["run", _PLAN]
    examples = (*_GPU, _ARRAY) if _has_gpus() else (*_CPU, _ARRAY)
    raise UsageError(
        f"nothing to submit: no command was given, and this folder has no [slurm] command in atropos.toml, "
        f"no {_PIPELINE} and no {_PLAN}",
        hint="for example:\n" + "\n".join(f"  {line}" for line in examples),
    )


def _has_gpus() -> bool:
    """Does a partition of this cluster offer GPUs?"""
    sinfo = shutil.which("sinfo")
    if sinfo is None:
        return False
    try:
        asked = [sinfo, "--noheader", "--format=%G"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "gpu" in done.stdout
