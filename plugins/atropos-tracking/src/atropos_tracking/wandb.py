"""Weights & Biases: metrics of every step and growing tables of completions, online or below RUN/wandb."""

from __future__ import annotations

import importlib
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.outputs import SAMPLE_COLUMNS, TrackedRun, Tracker

_PROJECT = "atropos"
_LONGEST_TAG = 64
_LONGEST_SUITE = 80  # a table is an artifact, whose name may have 128 characters
_VIDEO_COLUMNS = ("task", "return", "steps", "success")
_FINISH_SECONDS = 100.0  # less than the run waits for all its trackers
_using: set[int] = set()
_using_lock = threading.Lock()


class WandbTracker(Tracker):
    """One W&B run for one run folder, whatever the number of attempts."""

    name = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        # Its own error reports and its questions on the terminal are not what a run wants.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        self._wandb: Any = importlib.import_module("wandb")
        self._told = run
        # The x-axis. W&B's own step may only grow; after a kill, a resumed run makes some steps again.
        self._step = run.axis
        known = {name: str(run.known.get(name) or "") for name in ("id", "project", "entity")}
        self._project = run.project or known["project"] or os.environ.get("WANDB_PROJECT") or _PROJECT
        self._entity = run.entity or known["entity"] or None
        self._id = known["id"] or secrets.token_hex(4)
        kept: JsonDict = {"id": self._id, "project": self._project}
        if self._entity is not None:
            kept["entity"] = self._entity
        run.keep({**run.known, **kept})
        self._tables: dict[str, Any] = {}
        with _using_lock:
            _using.add(id(self))
        self._run = self._begin()
        self._offline = bool(self._run.settings._offline)
        self._run.define_metric(self._step)
        self._run.define_metric("*", step_metric=self._step)
        url = None if self._offline else self._run.url
        run.keep({**kept, "offline": self._offline, "url": url})

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        self._run.log({self._step: step, **{name: value for name, value in values.items() if value is not None}})

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        for suite in dict.fromkeys(_suite(row, self._told) for row in rows):
            key = f"samples/{suite[:_LONGEST_SUITE]}".replace("\0", "")
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = self._new_table(suite, step)
            for row in rows:
                if _suite(row, self._told) == suite:
                    table.add_data(step, *(_cell(row.get(name)) for name in SAMPLE_COLUMNS))
            self._run.log({self._step: step, key: table})

    def videos(self, step: int, rows: Sequence[JsonDict]) -> None:
        for row in rows:
            key = f"videos/{_suite(row, self._told)[:_LONGEST_SUITE]}".replace("\0", "")
            table = self._tables.get(key)
            if table is None:
                table = self._tables[key] = self._wandb.Table(
                    columns=["step", *_VIDEO_COLUMNS, "video"], log_mode="MUTABLE", allow_mixed_types=True
                )
            path = str(row["path"])
            video = self._wandb.Video(path, format=path.rpartition(".")[2])
            # A table alone does not bring its files into the run's folder: the video is logged by itself first.
            self._run.log({self._step: step, f"{key}/{row['task']}".replace("\0", ""): video})
            table.add_data(step, *(_cell(row.get(name)) for name in _VIDEO_COLUMNS), video)
            self._run.log({self._step: step, f"{key}/table": table})

    def summary(self, step: int, values: Mapping[str, float | str]) -> None:
        self._run.summary.update(dict(values))

    def finish(self, code: int) -> None:
        self._run.finish(exit_code=code)
        # W&B's service holds the last of the offline log in memory, and writes it some time after finish(). Whatever
        # kills all processes of the job meanwhile would leave an empty log, and `wandb sync` would read half a one.
        with _using_lock:
            _using.discard(id(self))
            if not _using and getattr(self._wandb, "run", None) is None:  # a run of somebody else needs the service
                self._wandb.teardown()

    def _begin(self) -> Any:
        run = self._told
        if run.offline:
            return self._init("offline")
        if not _logged_in(self._wandb):
            run.say("wandb has no API key here: the run is recorded below its folder; `wandb sync` sends it later")
            return self._init("offline")
        try:
            return self._init("online")
        except Exception as error:  # noqa: BLE001 (no network, no permission: the data is kept all the same)
            self._wandb.teardown()  # else the id counts as in use
            run.say(f"wandb cannot be reached ({type(error).__name__}): the run is recorded below its folder")
            return self._init("offline")

    def _init(self, mode: str) -> Any:
        run = self._told
        tags = [tag.strip()[:_LONGEST_TAG] for tag in run.tags if tag.strip()]
        given = {"entity": self._entity, "group": run.group, "tags": tags or None}  # else its own variables
        return self._wandb.init(
            project=self._project,
            name=run.name,
            id=self._id,
            resume="allow",
            mode=mode,
            job_type=os.environ.get("WANDB_JOB_TYPE") or run.command,
            dir=str(run.folder),
            config=run.config,
            settings=self._wandb.Settings(
                console="off", silent=True, init_timeout=30, finish_timeout=_FINISH_SECONDS, save_code=False
            ),
            **{name: value for name, value in given.items() if value is not None},
        )

    def _new_table(self, suite: str, step: int) -> Any:
        """A table that is sent in increments. Offline, W&B cannot know the rows of earlier attempts: they go first."""
        table = self._wandb.Table(columns=["step", *SAMPLE_COLUMNS], log_mode="INCREMENTAL", allow_mixed_types=True)
        for row in self._told.earlier_samples() if self._offline and self._told.resume else ():
            if _suite(row, self._told) == suite and isinstance(row["step"], int) and row["step"] < step:
                table.add_data(row["step"], *(_cell(row.get(name)) for name in SAMPLE_COLUMNS))
        return table


def _logged_in(wandb: Any) -> bool:
    """Are there credentials? Asks nobody, and no server."""
    return bool(wandb.login(prompt=False, verify=False))


def _suite(row: JsonDict, run: TrackedRun) -> str:
    return str(row.get("suite") or run.command)


def _cell(value: Any) -> Any:
    """One type a column: what was extracted or expected may be a number in one row and a text in the next."""
    return value if value is None or isinstance(value, bool | int | float) else str(value)
