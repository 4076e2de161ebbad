"""Stored checkpoints judged once more: which plans that takes, and where the values are kept.

RUN/reevaluations/CHECKPOINT/SUITE/ is an evaluation run like any other; RUN/reevaluations.json holds the
values of all, by checkpoint, under the names they have in metrics.jsonl.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from atropos_cli.sdk import DataError, UsageError
from atropos_cli.sdk.analysis import Evaluation
from atropos_cli.sdk.data import atomic_write, read_object
from atropos_cli.sdk.engine import LOCAL_BACKEND, Registry, public_options
from atropos_cli.sdk.records import checkpoints
from atropos_cli.sdk.runs import ComponentRef, Plan
from atropos_cli.sdk.training import TrainPlan

FILE, FOLDER = "reevaluations.json", "reevaluations"
FINAL = "model"
"""Name of the weights that training ended with."""


@dataclass(frozen=True, slots=True)
class Reevaluation:
    """One checkpoint on one suite. place: the run folder of the evaluation."""

    checkpoint: str
    suite: str
    plan: Plan
    place: Path


def reevaluations(
    plan: TrainPlan, folder: Path, registry: Registry, *, wanted: Sequence[str] = (), suites: Sequence[str] = ()
) -> list[Reevaluation]:
    """What there is to do: every stored checkpoint and the final weights, or those wanted. Raises DataError."""
    stored = {name: folder / "checkpoints" / name for name in checkpoints(folder)}
    if (folder / FINAL).is_dir():
        stored[FINAL] = folder / FINAL
    if not stored:
        raise DataError(f"{folder} holds no checkpoints", hint="give the folder of an `atropos train` run")
    _known("checkpoint", wanted, stored)
    if not plan.suites:
        raise DataError(f"{folder} was trained without suites", hint="atropos eval ENV --model CHECKPOINT-FOLDER")
    _known("suite", suites, [suite.name for suite in plan.suites])
    return [
        Reevaluation(name, suite.name, _local(suite.plan, path, registry), _place(folder, name, suite.name))
        for name, path in stored.items()
        if not wanted or name in wanted
        for suite in plan.suites
        if not suites or suite.name in suites
    ]


def values_of(suite: str, found: Evaluation) -> dict[str, float]:
    """The numbers of an evaluation under the names they have while training."""
    return {f"eval/{suite}/{name}": value for name, value in found.headline().items()}


def keep_values(folder: Path, checkpoint: str, values: dict[str, float]) -> None:
    """Add a checkpoint's values to reevaluations.json."""
    known = read_reevaluations(folder)
    known[checkpoint] = {**known.get(checkpoint, {}), **values}
    atomic_write(folder / FILE, json.dumps(known, indent=2, ensure_ascii=False).encode() + b"\n")


def read_reevaluations(folder: Path) -> dict[str, dict[str, float]]:
    """Values by checkpoint; empty when there are none. Raises DataError for a damaged file."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        found = read_object(path)
        return {str(name): {str(key): float(value) for key, value in values.items()} for name, values in found.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="remove it, then atropos reevaluate RUN") from error


def _local(plan: Plan, checkpoint: Path, registry: Registry) -> Plan:
    """The suite's plan, with the checkpoint as its model in this process, or as the policy that plays without one."""
    environment = registry.find("environment", plan.environment.name, dist=plan.environment.dist).load()
    for option, backend in environment.without_model.items():
        if plan.backend.name == backend:
            own = {**plan.environment.config, option: str(checkpoint.absolute())}
            found = plan.environment.model_copy(update={"config": own})
            return plan.model_copy(update={"model": str(checkpoint), "environment": found})
    if plan.backend.name == LOCAL_BACKEND:
        return plan.model_copy(update={"model": str(checkpoint)})
    local = registry.find("backend", LOCAL_BACKEND)
    reference = ComponentRef(
        name=local.name, dist=local.dist, version=local.version, config=public_options(local.load().Config())
    )
    return plan.model_copy(update={"model": str(checkpoint), "backend": reference})


def _place(folder: Path, checkpoint: str, suite: str) -> Path:
    return folder / FOLDER / checkpoint / re.sub(r"[^A-Za-z0-9._-]", "_", suite)


def _known(what: str, wanted: Sequence[str], known: object) -> None:
    names = list(known) if isinstance(known, dict | list) else []
    for name in wanted:
        if name not in names:
            raise UsageError(f"the run has no {what} {name!r}", hint=f"it has: {', '.join(names)}")
