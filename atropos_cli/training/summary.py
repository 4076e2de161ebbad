"""What a training run is and came to: its plan, and the parts of train.json that are read off the run folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.training import TrainPlan
from atropos_cli.io.rundir import read_stored
from atropos_cli.plugins.files import names_a_file
from atropos_cli.tracking.services import read_ids
from atropos_cli.training.metrics import Values, read_metrics, series

FILE = "train.json"
EVALUATIONS = "evals"
"""Folder of the evaluations made while training."""


class Curve(Frozen):
    """A metric at its first, last and best step. best is None for metrics that no direction is known of."""

    first: float
    first_step: int
    last: float
    last_step: int
    best: float | None = None
    best_step: int | None = None


def curves(rows: Sequence[tuple[int, Values]]) -> dict[str, Curve]:
    """Every evaluation metric, and the reward, of a run."""
    names = dict.fromkeys(name for _, values in rows for name in values if name.startswith("eval/") or name == "reward")
    found: dict[str, Curve] = {}
    for name in names:
        points = series(list(rows), name)
        if not points:
            continue
        (first_step, first), (last_step, last) = points[0], points[-1]
        best_step, best = max(points, key=lambda point: point[1]) if _more_is_better(name) else (None, None)
        found[name] = Curve(
            first=first, first_step=first_step, last=last, last_step=last_step, best=best, best_step=best_step
        )
    return found


def _more_is_better(name: str) -> bool:
    """The best step of these is the one with the highest value, the earliest of equals."""
    last = name.rpartition("/")[2]
    return last in ("accuracy", "reward") or last.startswith("pass")


def checkpoints(folder: Path) -> list[str]:
    """Names of the checkpoint folders of a run, by step."""
    found = [path for path in (folder / "checkpoints").glob("step-*") if path.is_dir() and step_of(path.name) >= 0]
    return [path.name for path in sorted(found, key=lambda path: step_of(path.name))]


def step_of(name: str) -> int:
    """The step of a checkpoint's name; -1 for other names."""
    digits = name.removeprefix("step-")
    return int(digits) if name.startswith("step-") and digits.isascii() and digits.isdigit() else -1


def summary(folder: Path) -> JsonDict:
    """Steps, values, checkpoints, tracker ids: what train.json holds beside the state that the engine knows."""
    rows = read_metrics(folder)
    trained = [step for step, values in rows if any(not name.startswith("eval/") for name in values)]
    return {
        "steps": trained[-1] if trained else 0,
        "curves": {name: curve.model_dump(mode="json") for name, curve in curves(rows).items()},
        "checkpoints": list(checkpoints(folder)),
        "trackers": read_ids(folder),
    }


def read_train_plan(path: Path) -> TrainPlan:
    """The training plan of a plan.json. Raises DataError naming the file and the error."""
    return read_stored(path, TrainPlan, what="the plan of a training run", hint="give a training run's folder")


def file_name(suite: str) -> str:
    """The suite's name as part of a file's."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", suite)


def plain_name(environment: str) -> str:
    """The name of an environment in metrics: for one in a file its class, since paths do not fit there."""
    return environment.rpartition(":")[2].lower() if names_a_file(environment) else environment
