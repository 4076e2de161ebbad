"""samples.jsonl: some completions of a step in readable form, with their rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.evaluation.evaluation import own_verdict, succeeded, success_threshold
from atropos_cli.ports.reward import Reward
from atropos_cli.ports.tracker import SAMPLE_COLUMNS
from atropos_cli.training.steplog import StepLog, read_steps

T = TypeVar("T")

FILE = "samples.jsonl"
COLUMNS = SAMPLE_COLUMNS
PER_STEP = 8
MOST_CHARACTERS = 4000
MOST_EXTRACTED = 2000
"""Characters of an extracted answer in a row of the records; it may be a whole program."""


class Samples:
    """Appends to a run folder's samples.jsonl, at most `per_step` rows a call and `characters` a text."""

    def __init__(self, folder: Path, *, per_step: int = PER_STEP, characters: int = MOST_CHARACTERS) -> None:
        self._log = StepLog(folder / FILE)
        self._per_step = per_step
        self._characters = characters

    def write(self, step: int, rows: Sequence[Mapping[str, Any]], *, suite: str | None = None) -> list[JsonDict]:
        """Record rows evenly taken from those given; returns them as written. suite: of an evaluation."""
        kept = [self._row(step, row, suite) for row in spaced(rows, self._per_step)]
        for row in kept:
            self._log.write(row, (step, int(suite is not None)))
        return kept

    def rewind(self, step: int) -> None:
        """The run continues after this step: later rows leave the file. write() does so by itself."""
        self._log.cut((step + 1, 0))

    def close(self) -> None:
        self._log.close()

    def _row(self, step: int, row: Mapping[str, Any], suite: str | None) -> JsonDict:
        shown: JsonDict = {"step": step} if suite is None else {"step": step, "suite": suite}
        return shown | {name: plain_cell(row.get(name), self._characters) for name in COLUMNS}


def read_samples(folder: Path) -> list[JsonDict]:
    """The rows in the order they were written."""
    return list(read_steps(folder / FILE))


def spaced(rows: Sequence[T], most: int) -> list[T]:
    """At most `most` items, from the whole length of the list: a step's first rows are often one task's."""
    if len(rows) <= most:
        return list(rows)
    return [rows[i * len(rows) // most] for i in range(most)]


def plain_cell(value: Any, most: int) -> str | float | bool | None:
    """A cell: numbers and truth as they are, everything else as text of bounded length."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = clean_text(text)
    return text if len(text) <= most else f"{text[:most]} ... [{len(text) - most} more characters]"


def sample_row(task: Task, rollout: Rollout, rewards: Sequence[Reward] = ()) -> JsonDict:
    """What the records keep of a completion: as read by the episode or a reward, and judged as by `atropos eval`.

    `expected` is the task's answer. Without rewards `correct` is the episode's own verdict or None.
    """
    prompt = [message for message in rollout.messages if message.role != "assistant"]
    return {
        "task": task.id,
        "prompt": "\n\n".join(message.text for message in prompt[:4]),
        "completion": rollout.text,
        "extracted": _extracted(task, rollout, rewards),
        "expected": task.answer,
        "reward": rollout.reward,
        "correct": _correct(rollout, rewards),
    }


def _extracted(task: Task, rollout: Rollout, rewards: Sequence[Reward]) -> JsonValue:
    """What the episode stored as the answer, else what the first reward that extracts one reads."""
    try:
        if "extracted" in rollout.info:
            return plain_cell(rollout.info["extracted"], MOST_EXTRACTED)
        extract = next((reward.extract for reward in rewards if reward.extract is not None), None)
        return None if extract is None else plain_cell(extract(task, rollout), MOST_EXTRACTED)
    except Exception:  # noqa: BLE001 - a plugin's error in a sample must not end a training run
        return None


def _correct(rollout: Rollout, rewards: Sequence[Reward]) -> bool | None:
    if own_verdict(rollout) is None and (not rewards or rollout.reward is None):
        return None
    return succeeded(rollout, success_threshold(rewards))
