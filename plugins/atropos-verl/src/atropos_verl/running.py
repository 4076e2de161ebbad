"""verl while it runs: watched until it ends, its metrics, evaluations and checkpoints brought into the run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk.distributed import (
    Launched,
    Lines,
    Nodes,
    Played,
    Ray,
    prune,
    publish,
    raise_fatal,
)
from atropos_cli.sdk.training import TrainContext, TrainerError, TrainPlan, TrainResult

MAIN = ("-m", "verl.trainer.main_ppo")
_TICK = 1.0
_GRACE = 30.0
_NOT_THEIRS = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
NAMES = {
    "actor/pg_loss": "loss",
    "actor/grad_norm": "grad_norm",
    "actor/kl_loss": "kl",
    "actor/entropy": "entropy",
    "actor/lr": "learning_rate",
    "actor/pg_clipfrac": "clip_ratio",
    "critic/score/mean": "reward",
    "response_length/mean": "completions/mean_length",
    "response_length/max": "completions/max_length",
    "response_length/clip_ratio": "completions/clipped_ratio",
    "num_turns/mean": "num_turns",
    "perf/throughput": "tokens_per_second",
    "timing_s/step": "step_time",
}
"""verl's names of numbers that other trainers report too."""
_MARKS = {"actor/pg_loss", "critic/score/mean"}
"""One of them is in the numbers of each optimiser step, and in no others."""
_LATEST = "latest_checkpointed_iteration.txt"


def numbers(data: dict[str, Any]) -> dict[str, float]:
    """verl's numbers of a step under our names, the others behind verl/; those of its evaluation are left out."""
    found = {}
    for name, value in data.items():
        if value is None and name in NAMES:  # JSON has no NaN
            value = float("nan")
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and not name.startswith(("val-", "training/"))
        ):
            found[NAMES.get(name, f"verl/{name}")] = float(value)
    return found


class Running:
    """One session of a run. folder: verl's part of the run folder."""

    def __init__(self, plan: TrainPlan, context: TrainContext, folder: Path, nodes: Nodes, python: str) -> None:
        self._plan, self._context, self._folder, self._python = plan, context, folder, python
        code = str(folder / "code")
        env = {name: value for name, value in os.environ.items() if name not in _NOT_THEIRS}
        env |= {"PYTHONPATH": code, "HYDRA_FULL_ERROR": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
        self._env = env
        self._ray = Ray(nodes, python, folder, env)
        self._metrics: dict[str, float] = {}
        self._published: set[int] = set()

    def clean(self) -> None:
        """Forget what a start that failed has left."""
        if not self._context.resume:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)

    def help(self) -> TrainResult:
        """The part of a node other than the first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ray.follow(lambda: self._context.stopping)
        return TrainResult(output=str(self._context.folder), steps=0, stopped=None)

    def lead(self, settings: Sequence[str], steps: int) -> TrainResult:
        """Run verl to its end, or until the run is asked to stop."""
        context = self._context
        if self._latest() >= steps:  # all but the end of an earlier session is there
            self._bring()
            return self._result(None, steps)
        played = Played(self._folder, self._plan)
        metrics = self._new_file()
        lines = Lines(metrics)
        launched: Launched | None = None
        try:
            env = {**self._env, **self._ray.lead(lambda: context.stopping), "VERL_FILE_LOGGER_PATH": str(metrics)}
            if not context.stopping:
                command = [self._python, *MAIN, *settings]
                launched = Launched(command, env, self._folder / "verl.log")
            while launched is not None and launched.code is None and not context.stopping:
                raise_fatal(self._folder)
                self._read(lines, played)
                time.sleep(_TICK)
            if launched is not None and context.stopping:
                launched.end(_GRACE)
            self._read(lines, played)
            raise_fatal(self._folder)
        finally:
            if launched is not None:
                launched.end(_GRACE)
            self._ray.close()
        return self._result(launched, steps)

    def _result(self, launched: Launched | None, steps: int) -> TrainResult:
        context, last = self._context, self._latest()
        if context.stopping and last != steps:
            saved = context.folder / "checkpoints" / f"step-{last}" if last else context.folder
            return TrainResult(output=str(saved), steps=last, metrics=self._metrics, stopped="interrupted")
        if last != steps:
            code = None if launched is None else launched.code
            said = "" if launched is None else launched.said(1)
            raise TrainerError(
                f"verl ended with code {code} after step {last} of {steps}: {said}",
                hint=f"see {self._folder / 'verl.log'}; --resume continues from the last checkpoint",
            )
        if launched is not None and launched.code not in (0, None):
            context.warn(f"verl ended with code {launched.code} after its last step; see {launched.log}")
        output = context.folder / "model"
        publish(self._weights(last), output)
        return TrainResult(output=str(output), steps=last, metrics=self._metrics)

    def _new_file(self) -> Path:
        """verl empties the file of its metrics when it starts: each session has one."""
        number = len(list(self._folder.glob("metrics-*.jsonl")))
        return self._folder / f"metrics-{number}.jsonl"

    def _read(self, lines: Lines, played: Played) -> None:
        for line in lines.new():
            step, data = line.get("step"), line.get("data")
            if not isinstance(step, int) or not isinstance(data, dict):
                continue
            played.look()
            found = numbers(data)
            if step > 0 and not _MARKS.isdisjoint(data):
                self._metrics = found
                self._context.played(step, played.trained(step))
                self._context.report(step, found)
            if any(name.startswith("val-") for name in data):
                self._context.evaluated(step, played.evaluated(step))
        self._bring()

    def _bring(self) -> None:
        """Publish the newest checkpoints that are complete: verl names the last of them when it has written it."""
        latest, root = self._latest(), self._folder / "checkpoints"
        names = (path.name.removeprefix("global_step_") for path in root.glob("global_step_*"))
        steps = sorted(step for step in map(int, filter(str.isdecimal, names)) if step <= latest)
        for step in steps[-self._plan.keep_checkpoints :]:
            target = self._context.folder / "checkpoints" / f"step-{step}"
            if step in self._published or not self._weights(step).is_dir():
                continue
            self._published.add(step)
            try:
                if not target.exists():
                    publish(self._weights(step), target)
            except TrainerError:
                if step == latest:
                    raise  # an older one: verl may have deleted it meanwhile
            best = next((one for one in self._published if self._context.is_best(one)), None)
            prune(self._context.folder, self._plan.keep_checkpoints, best)

    def _latest(self) -> int:
        try:
            return int((self._folder / "checkpoints" / _LATEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0

    def _weights(self, step: int) -> Path:
        actor = self._folder / "checkpoints" / f"global_step_{step}" / "actor"
        adapter = actor / "lora_adapter"
        return adapter if adapter.is_dir() else actor / "huggingface"
