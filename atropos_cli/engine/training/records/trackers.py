"""Trackers: services and files beside the run's own records. A tracker that fails is left out, never fatal.

Nothing is opened, and so nothing sent, but what the plan names. Run ids are kept in trackers.json of the
run folder, so that a resumed run goes on under the same id.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.training import TrainPlan
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import read_object

FILE = "trackers.json"

Say = Callable[[str], None]
Values = Mapping[str, float | None]


class Tracker(Protocol):
    """One service. Any call may raise; Trackers takes care of it."""

    name: str

    def metrics(self, step: int, values: Values) -> None: ...

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None: ...

    def finish(self, code: int) -> None: ...


class Trackers:
    """All trackers of a run. None of its methods raises on account of a tracker."""

    def __init__(self, trackers: Sequence[Tracker], say: Say) -> None:
        self._trackers = list(trackers)
        self._say = say

    @property
    def names(self) -> list[str]:
        """Those that still work."""
        return [tracker.name for tracker in self._trackers]

    def metrics(self, step: int, values: Values) -> None:
        self._each(lambda tracker: tracker.metrics(step, values))

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        if rows:
            self._each(lambda tracker: tracker.samples(step, rows))

    def finish(self, code: int) -> None:
        """End all of them; call it on every way out. code: the exit code that the program is about to end with."""
        self._each(lambda tracker: tracker.finish(code))
        self._trackers = []

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:  # noqa: BLE001 (whatever a tracker raises, training goes on)
                self._trackers.remove(tracker)
                self._say(f"{tracker.name} is left out from here: {_reason(error)}; training goes on")


def open_trackers(plan: TrainPlan, folder: Path, say: Say, *, resume: bool = False) -> Trackers:
    """Open what the plan names; whatever cannot be opened is said once and left out."""
    opened: list[Tracker] = []
    for name in plan.trackers:
        try:
            opened.append(_OPENERS[name](plan, folder, say, resume))
        except ModuleNotFoundError as error:
            say(f"{name} is left out: {error.name} is not installed (pip install 'atropos-cli[{name}]')")
        except Exception as error:  # noqa: BLE001 (see above)
            say(f"{name} is left out: {_reason(error)}; training goes on")
    return Trackers(opened, say)


def read_ids(folder: Path) -> dict[str, Any]:
    """What trackers.json holds; empty when there is none or it is damaged."""
    try:
        return read_object(folder / FILE)
    except (OSError, ValueError):
        return {}


def keep_id(folder: Path, name: str, values: JsonDict) -> None:
    """Store a tracker's own id of the run."""
    atomic_write(folder / FILE, json.dumps({**read_ids(folder), name: values}, indent=2).encode() + b"\n")


def offline() -> bool:
    """Did the user ask that nothing goes over the network?"""
    wanted = os.environ.get("ATROPOS_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")
    return wanted or os.environ.get("WANDB_MODE", "").strip().lower() in ("offline", "dryrun")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _wandb(plan: TrainPlan, folder: Path, say: Say, resume: bool) -> Tracker:
    from atropos_cli.engine.training.records.wandb import WandbTracker

    return WandbTracker(plan, folder, say, resume=resume)


def _tensorboard(plan: TrainPlan, folder: Path, say: Say, resume: bool) -> Tracker:
    from atropos_cli.engine.training.records.tensorboard import TensorBoardTracker

    return TensorBoardTracker(folder, resume=resume)


_OPENERS: dict[str, Callable[[TrainPlan, Path, Say, bool], Tracker]] = {"wandb": _wandb, "tensorboard": _tensorboard}
