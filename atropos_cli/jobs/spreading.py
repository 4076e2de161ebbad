"""A run in shards that somebody else carries out: write the shards' plans, and join what came out.

<run>/shards/0/plan.json, <run>/shards/1/plan.json, ...      each is carried out by `atropos run <run>/shards/I`
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from atropos_cli.domain.plan import Plan
from atropos_cli.domain.run import RunSummary
from atropos_cli.domain.runplan import RunPlan
from atropos_cli.errors import DataError, PlanChanged, RunExists
from atropos_cli.io.append import write_orders
from atropos_cli.io.remote import make_folder
from atropos_cli.io.rundir import check_same_plan, read_plan
from atropos_cli.jobs.code import CODE_FOLDER
from atropos_cli.jobs.shards import merge_shards, shard_folder
from atropos_cli.rollout.supply import check_whole

_PASSED_ON = ("ATROPOS_", "HF_", "OPENAI_", "WANDB_")
_NOT_PASSED_ON = {"ATROPOS_DEBUG", "ATROPOS_CONFIG"}


def write_shards(plan: Plan, folder: Path, count: int, *, resume: bool) -> None:
    """Write the plan of each shard. Raises RunExists, PlanChanged (another plan or number of shards) or DataError."""
    begun = _begun(folder)
    if folder.exists() and any(path.name != CODE_FOLDER for path in folder.iterdir()):
        if not resume:
            raise RunExists(
                f"{folder} is not empty", hint="--resume goes on with a run in shards, --output names another"
            )
        if not begun:
            raise RunExists(f"{folder} was not begun in shards", hint="drop --on, or give another --output")
        if begun != count:
            raise PlanChanged(f"{folder} was begun in {begun} shards, not {count}", hint=f"--shards {begun}")
    check_whole(plan.selection)
    for index in range(count):
        place = shard_folder(folder, index)
        name, group = plan.tracking.run_name or folder.absolute().name, plan.tracking.run_group
        told = plan.tracking.replace(run_name=f"{name}-{index}", run_group=group or name)
        own = plan.replace(execution=plan.execution.replace(shard=f"{index}/{count}"), tracking=told)
        if (place / "plan.json").exists():
            old = read_plan(place / "plan.json")
            own = own.replace(model=own.model or old.model)
            check_same_plan(old, own, place)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{place} cannot be made: {error.strerror}", hint="give another --output") from error
        store_plan(own, place)


def store_plan(plan: RunPlan, folder: Path) -> None:
    """Write plan.json, which `atropos run` carries out there. Raises ConfigError when a secret would stand in it."""
    make_folder(folder)
    data = {"digest": plan.digest, **plan.model_dump(mode="json")}
    write_orders(folder / "plan.json", json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n")


def join_shards(folder: Path, count: int) -> RunSummary:
    """Merge the shards into the run's folder; the summary of the whole. Raises DataError."""
    merge_shards(folder, count)
    return RunSummary.model_validate_json((folder / "summary.json").read_bytes())


def variables(plan: Plan, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a run needs elsewhere: ours, those of the hub and of services, and the API key's."""
    key = plan.backend.config.get("api_key_env")
    return passed_on(environ, key if isinstance(key, str) else None)


def passed_on(environ: Mapping[str, str] = os.environ, key: str | None = None) -> dict[str, str]:
    """Ours, those of the hub and of services, and the one named."""
    return {
        name: value
        for name, value in environ.items()
        if (name.startswith(_PASSED_ON) and name not in _NOT_PASSED_ON) or name == key
    }


def _begun(folder: Path) -> int:
    """How many shards the folder holds."""
    return sum(1 for path in folder.glob("shards/*/plan.json") if path.parent.name.isdecimal())
