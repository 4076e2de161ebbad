"""How training looks while it goes on, and its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from atropos_cli.sdk.commands import Output, counted
from atropos_cli.sdk.planning import (
    EASIER,
    HARDER,
    PLAIN_EVERY,
    StatusLine,
    Window,
    duration,
    is_rich_terminal,
    plain_line,
    printable,
)

if TYPE_CHECKING:
    from atropos_cli.sdk.engine import Rolling
    from atropos_cli.sdk.training import TrainPlan

_FIRST = 3  # steps that are told each
_SHOWN = ("loss", "reward", "grad_norm", "kl", "entropy", "completions/mean_length", "step_time")
_ENDS = 5  # steps at the beginning and at the end that a mean is taken over

Parts = list[tuple[int, str]]


class TrainReporter:
    """Tells of steps, evaluations and of the rollouts in between: a status line on a terminal, lines elsewhere."""

    def __init__(
        self,
        out: Output,
        steps: int | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._stream = stream
        self._clock = clock
        self._line = StatusLine(stream) if is_rich_terminal(stream or sys.stderr) and not out.quiet else None
        self._told = self._began = clock()
        self._first_step: tuple[int, float] | None = None
        self._state: tuple[int, int | None] = (0, steps)
        self._reward: float | None = None
        self._equal: float | None = None
        self._tokens: dict[str | None, int] = {}
        self._speed = Window()

    def say(self, text: str) -> None:
        """A message, above the status line."""
        if self._out.quiet:
            return
        if self._line is not None:
            self._line.clear()
        try:
            print(printable(text), file=self._stream or sys.stderr, flush=True)
        except (OSError, ValueError):
            return  # a closed stderr must not end the training

    def resumed(self, step: int) -> None:
        """The run continues after this step."""
        self._state = (step, self._state[1])
        self.say(f"resumed from step {step}")

    def step(self, step: int, total: int | None, values: Mapping[str, float | None]) -> None:
        """An optimiser step is done."""
        moment = self._clock()
        self._first_step = self._first_step or (step, moment)
        self._state = (step, total)
        self._reward = values.get("reward", self._reward)
        self._equal = values.get("frac_reward_zero_std", self._equal)
        due = step <= _FIRST or step == total or moment - self._told >= PLAIN_EVERY
        if self._out.verbose or (self._line is None and due):
            self._told = moment
            names = list(values) if self._out.verbose else _SHOWN
            shown = ", ".join(f"{name} {value:.4g}" for name in names if (value := values.get(name)) is not None)
            self.say(f"step {step}{'' if total is None else f'/{total}'}: {shown}")
        self._show([])

    def rolling(self, rolling: Rolling) -> None:
        """Rollouts for the next step, or of an evaluation, go on."""
        self._count(rolling)
        what = f"eval {rolling.suite}" if rolling.suite is not None else "rolling"
        more = [
            (3, f"{what} {rolling.groups_done}/{rolling.groups_total} groups"),
            (6, counted(rolling.rollouts_done, "rollout")),
            (7, f"{rolling.requests_in_flight} in flight"),
        ]
        moment = self._clock()
        if self._line is not None:
            self._show(more)
        elif moment - self._told >= PLAIN_EVERY:
            self._told = moment
            self.say(plain_line(self._parts(more)))

    def close(self) -> None:
        """Leave the terminal as it was. Safe to call twice."""
        if self._line is not None:
            self._line.close()

    def _show(self, more: Parts) -> None:
        step, total = self._state
        if self._line is not None:
            self._line.show(self._parts(more), step / total if total else None)

    def _parts(self, more: Parts) -> Parts:
        step, total = self._state
        parts = [(0, f"step {step}" if total is None else f"{step}/{total} steps"), *more]
        if self._reward is not None:
            parts.append((2, f"reward {self._reward:.3f}"))
        if self._equal is not None:
            parts.append((8, f"{100 * self._equal:.0f}% equal groups"))
        if self._tokens:
            parts.append((4, f"{self._speed.per_second():.0f} tokens/s"))
        parts.append((9, duration(self._clock() - self._began)))
        if (left := self._left()) is not None:
            parts.append((1, f"ETA {duration(left)}"))
        return parts

    def _left(self) -> float | None:
        """Seconds to the last step, by those since the first; None before there are two."""
        (step, total), first = self._state, self._first_step
        if total is None or first is None or step <= first[0]:
            return None
        return max(0, total - step) * (self._clock() - first[1]) / (step - first[0])

    def _count(self, rolling: Rolling) -> None:
        moment = self._clock()
        if not self._tokens:
            self._speed.add(moment, 0)
        self._tokens[rolling.suite] = rolling.completion_tokens
        self._speed.add(moment, sum(self._tokens.values()))


def train_headline(plan: TrainPlan, folder: Path) -> str:
    """The number that training is judged by: accuracies, else the reward, else the loss; first and last."""
    from atropos_cli.sdk.records import series
    from atropos_cli.sdk.runs import read_metrics

    rows = read_metrics(folder)
    found = []
    for suite in plan.suites:
        points = series(rows, f"eval/{suite.name}/accuracy")
        if not points:
            continue
        name = f"{suite.name} " if len(plan.suites) > 1 else ""
        tasks = _tasks(folder, suite.name, points[-1][0])
        told = "" if tasks is None else f" ({counted(tasks, 'task')})"
        first = f"{points[0][1]:.3f} -> " if len(points) > 1 else ""
        found.append(f"{name}{first}{points[-1][1]:.3f}{told}")
    if found:
        return "accuracy " + "; ".join(found)
    for name in ("reward", "loss"):
        values = [value for _, value in series(rows, name)]
        if values:
            ends = max(1, min(_ENDS, len(values) // 2))
            before, after = sum(values[:ends]) / ends, sum(values[-ends:]) / ends
            over = f" (mean of {ends} steps each)" if ends > 1 else ""
            return f"{name} {before:.3f} -> {after:.3f}{over}" if len(values) > 1 else f"{name} {after:.3f}"
    return "no step was made"


def no_spread_in_training(folder: Path) -> str | None:
    """What to change when hardly a group had rewards that differ; None when enough had."""
    from atropos_cli.sdk.records import series
    from atropos_cli.sdk.runs import read_metrics

    rows = read_metrics(folder)
    shares = [value for _, value in series(rows, "frac_reward_zero_std")]
    if not shares or (share := sum(shares) / len(shares)) < 0.9:
        return None
    rewards = [value for _, value in series(rows, "reward")]
    easy = bool(rewards) and sum(rewards) / len(rewards) > 0.5
    change = HARDER if easy else EASIER
    return f"{100 * share:.0f} % of the groups had equal rewards, and nothing is learnt from these: {change}"


def _tasks(folder: Path, suite: str, step: int) -> int | None:
    """How many tasks the accuracy is over, by the evaluation's own file."""
    from atropos_cli.sdk import AtroposError
    from atropos_cli.sdk.analysis import read_evaluation
    from atropos_cli.sdk.records import EVALUATIONS, suite_file

    try:
        found = read_evaluation(folder / EVALUATIONS / f"{suite_file(suite)}-step-{step}.json").accuracy
    except AtroposError:
        return None
    return found.tasks if found is not None else None
