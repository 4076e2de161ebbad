"""Weights & Biases: metrics of every step and growing tables of completions, online or below RUN/wandb."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.training import TrainPlan
from atropos_cli.engine.training.records.samples import COLUMNS, read_samples
from atropos_cli.engine.training.records.trackers import Say, Values, keep_id, offline, read_ids
from atropos_cli.redaction import redacted, redacted_json

STEP = "train/step"
"""The x-axis. W&B's own step may only grow; after a kill, a resumed run makes some steps again."""

_FINISH_SECONDS = 100.0  # less than the run waits for all its trackers


class WandbTracker:
    """One W&B run for one run folder, whatever the number of attempts."""

    name = "wandb"

    def __init__(self, plan: TrainPlan, folder: Path, say: Say, *, resume: bool) -> None:
        # Its own error reports and its questions on the terminal are not what a training run wants.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        self._wandb: Any = importlib.import_module("wandb")
        self._folder = folder
        self._resume = resume
        known = read_ids(folder).get("wandb", {}) if resume else {}
        self._id = str(known.get("id") or secrets.token_hex(4))
        keep_id(folder, "wandb", {**known, "id": self._id, "project": plan.project})
        self._tables: dict[str, Any] = {}
        self._run = self._begin(plan, say)
        self._offline = bool(self._run.settings._offline)
        self._run.define_metric(STEP)
        self._run.define_metric("*", step_metric=STEP)
        url = None if self._offline else self._run.url
        keep_id(folder, "wandb", {"id": self._id, "project": plan.project, "offline": self._offline, "url": url})

    def metrics(self, step: int, values: Values) -> None:
        self._run.log({STEP: step, **{name: value for name, value in values.items() if value is not None}})

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        for suite in dict.fromkeys(_suite(row) for row in rows):
            key = f"samples/{suite}"
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = self._new_table(suite, step)
            for row in rows:
                if _suite(row) == suite:
                    table.add_data(step, *(_cell(row.get(name)) for name in COLUMNS))
            self._run.log({STEP: step, key: table})

    def finish(self, code: int) -> None:
        self._run.finish(exit_code=code)

    def _begin(self, plan: TrainPlan, say: Say) -> Any:
        if offline():
            return self._init(plan, "offline")
        if not _logged_in(self._wandb):
            say("wandb has no API key here: the run is recorded below its folder; `wandb sync` sends it later")
            return self._init(plan, "offline")
        try:
            return self._init(plan, "online")
        except Exception as error:  # noqa: BLE001 (no network, no permission: the data is kept all the same)
            self._wandb.teardown()  # else the id counts as in use
            say(f"wandb cannot be reached ({type(error).__name__}): the run is recorded below its folder")
            return self._init(plan, "offline")

    def _init(self, plan: TrainPlan, mode: str) -> Any:
        return self._wandb.init(
            project=redacted(plan.project),
            name=redacted(plan.run_name or self._folder.name),
            id=self._id,
            resume="allow",
            mode=mode,
            dir=str(self._folder),
            config=redacted_json({"digest": plan.digest, **plan.model_dump(mode="json")}),
            settings=self._wandb.Settings(
                console="off", silent=True, init_timeout=30, finish_timeout=_FINISH_SECONDS, save_code=False
            ),
        )

    def _new_table(self, suite: str, step: int) -> Any:
        """A table that is sent in increments. Offline, W&B cannot know the rows of earlier attempts: they go first."""
        table = self._wandb.Table(columns=["step", *COLUMNS], log_mode="INCREMENTAL", allow_mixed_types=True)
        if self._offline and self._resume:
            for row in read_samples(self._folder):
                if _suite(row) == suite and isinstance(row["step"], int) and row["step"] < step:
                    table.add_data(row["step"], *(_cell(row.get(name)) for name in COLUMNS))
        return table


def _logged_in(wandb: Any) -> bool:
    """Are there credentials? Asks nobody, and no server."""
    return bool(wandb.login(prompt=False, verify=False))


def _suite(row: JsonDict) -> str:
    return str(row.get("suite") or "train")


def _cell(value: Any) -> Any:
    """One type a column: what was extracted or expected may be a number in one row and a text in the next."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)
