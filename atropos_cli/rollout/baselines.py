"""Role-conditioned advantages: a rollout's reward against the average of earlier ones of the same game and role.

For each game and role there is one number b, at first 0. A rollout with reward R has the advantage R - b, and only then
b becomes 0.95 b + 0.05 R (SPIRAL, arXiv 2506.24119). The rollouts of a group count in their order.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.task import TASK_NAME
from atropos_cli.io.append import AppendLog

DECAY = 0.95
KIND = "rae"
FILE = "baselines.jsonl"
"""Of a training: the averages after the rollouts of each step, since a checkpoint may be older than the groups."""


class Baselines:
    """The averages of a run, by game and role. They depend on the groups written so far, in their order, alone."""

    def __init__(self, values: Mapping[str, float] | None = None) -> None:
        self.values: dict[str, float] = dict(values or {})

    def add(self, group: ScoredGroup) -> tuple[float | None, ...]:
        """Take up a group; the advantages of its rollouts."""
        found: list[float | None] = []
        for rollout in group.rollouts:
            if rollout.reward is None:
                found.append(None)
                continue
            key = f"{group.task.info.get(TASK_NAME) or group.env}/{rollout.role or ''}"
            baseline = self.values.get(key, 0.0)
            found.append(rollout.reward - baseline)
            self.values[key] = DECAY * baseline + (1 - DECAY) * rollout.reward
        return tuple(found)

    def judged(self, groups: tuple[ScoredGroup, ...], kind: str) -> tuple[ScoredGroup, ...]:
        """The groups with these advantages, where the plan asks for them. Nothing is taken up yet."""
        if kind != KIND:
            return groups
        trial = Baselines(self.values)
        made = []
        for group in groups:
            values = trial.add(group)
            made.append(group if group.advantages is not None else group.model_copy(update={"advantages": values}))
        return tuple(made)

    def keep(self, folder: Path, step: int) -> None:
        """Append them as those after a step's rollouts."""
        with contextlib.closing(AppendLog(folder / FILE, fsync="never")) as log:
            log.write(json.dumps({"step": step, "values": self.values}).encode() + b"\n")

    @classmethod
    def before(cls, folder: Path, step: int) -> Baselines:
        """Those that a training had before a step: of the last attempt at the step before it."""
        found = cls()
        with contextlib.suppress(FileNotFoundError):
            for line in (folder / FILE).read_text().splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    data = json.loads(line)
                    if int(data["step"]) < step:
                        found = cls({str(key): float(value) for key, value in data["values"].items()})
        return found
