"""A training run of several processes, as torchrun and accelerate start them: rank 0 keeps the run, the others help.

The other ranks hold no lock and write no records; their groups, failures and warnings go to RUN/ranks/N. Nothing is
written there before the processes have met (`TrainContext.adopt`), when rank 0 has locked and begun the folder.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from atropos_cli.sdk import AtroposError, JsonDict
from atropos_cli.sdk.engine import Rolling
from atropos_cli.sdk.runs import RunDir, holds_run

LOADED = "loaded"
"""File in RUN/sync: the step whose weights the servers have, written by rank 0."""
_TICK = 0.02


def rank() -> int:
    """The number of this process, as the launcher says it; 0 without one."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def wait_for(path: Path, content: str) -> None:
    """Until another process has written this there. For ever: when one fails, its launcher ends the others."""
    while not path.exists() or path.read_text(encoding="ascii") != content:
        time.sleep(_TICK)


class RankDir(RunDir):
    """RUN/ranks/N, made when something is written. run: the folder that rank 0 has locked."""

    def __init__(self, run: Path, number: int) -> None:
        super().__init__(run / "ranks" / str(number), -1)
        self.run = run


def open_rank(folder: Path, number: int, *, overwrite: bool) -> RankDir:
    """The folder of a rank other than 0. The run that is replaced stays until the end, so that all ranks see it."""
    if overwrite and holds_run(folder):
        folder = folder.with_name(f"{folder.name}.new")
    return RankDir(folder, number)


class RankRecording:
    """The records of a rank other than 0: its warnings, in a log of its own. Rank 0 records the numbers of all."""

    def __init__(self, run_dir: RankDir) -> None:
        self._run_dir = run_dir

    def resumed(self, step: int, *, evaluated: bool) -> None:
        """See Recording: rank 0 says so."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """See Recording: rank 0 has the numbers of all ranks."""

    def rolling(self, rolling: Rolling) -> None:
        """See Recording: rank 0 reports its own."""

    def samples(self, step: int, rows: Sequence[JsonDict], *, suite: str | None = None) -> None:
        """See Recording: those of rank 0 are shown."""

    def videos(self, step: int, rows: Sequence[JsonDict]) -> None:
        """See Recording: rank 0 evaluates."""

    def evaluation(self, step: int, values: Mapping[str, float]) -> None:
        """See Recording: rank 0 evaluates."""

    def warn(self, message: str) -> None:
        """Into the rank's log, once there is a folder for it; earlier lines are also written by rank 0."""
        if self._run_dir.folder.is_dir():
            with contextlib.suppress(AtroposError):
                self._run_dir.log("warning", message=message)
