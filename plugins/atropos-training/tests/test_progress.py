"""What a training says while it runs, and its number at the end."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

from atropos_training.progress import TrainReporter, no_spread_in_training, train_headline

from atropos_cli.console.output import NORMAL, QUIET, VERBOSE, Output
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef
from atropos_cli.domain.training import EvalSuite, TrainPlan
from atropos_cli.rollout.report import Rolling


def training(out: Output) -> list[str]:
    now, stream = 0.0, io.StringIO()
    reporter = TrainReporter(out, 100, stream, clock=lambda: now)
    reporter.say("warning: something")
    for step in range(1, 101):
        for done in range(4):
            now += 2.0
            tokens = (step * 4 + done) * 100
            reporter.rolling(Rolling(step - 1, None, done, 4, done * 8, 8, tokens))
        reporter.step(step, 100, {"loss": 0.5, "reward": step / 100, "odd": 1.0, "frac_reward_zero_std": 0.25})
    reporter.close()
    return stream.getvalue().splitlines()


def test_training_tells_of_steps_and_of_the_rollouts_between() -> None:
    lines = training(Output(NORMAL))
    assert lines[:2] == ["warning: something", "step 1/100: loss 0.5, reward 0.01"]
    assert lines[-1] == "step 100/100: loss 0.5, reward 1"
    between = [line for line in lines if "rolling" in line]
    assert len(between) >= 40
    assert re.fullmatch(
        r"50/100 steps, rolling \d/4 groups, \d+ rollouts, 8 in flight, reward 0.500, 25% equal groups, "
        r"50 tokens/s, 6m4\ds, ETA 6m4\ds",
        next(line for line in between if line.startswith("50/100")),
    )


def test_a_resumed_training_counts_on_from_its_step() -> None:
    now, stream = 0.0, io.StringIO()
    reporter = TrainReporter(Output(NORMAL), 100, stream, clock=lambda: now)
    reporter.resumed(40)
    now = 60.0
    reporter.rolling(Rolling(40, None, 1, 4, 8, 8, 100))
    said, line = stream.getvalue().splitlines()
    assert said == "resumed from step 40"
    assert line.startswith("40/100 steps, rolling 1/4 groups")


def test_training_is_silent_or_tells_all() -> None:
    assert training(Output(QUIET)) == []
    lines = training(Output(VERBOSE))
    assert len([line for line in lines if line.startswith("step ")]) == 100
    assert lines[-1] == "step 100/100: loss 0.5, reward 1, odd 1, frac_reward_zero_std 0.25"


def train_plan(*suites: str) -> TrainPlan:
    plan = Plan(atropos_version="0", environment=ComponentRef(name="sums"), backend=ComponentRef(name="scripted"))
    return TrainPlan(
        atropos_version="0",
        method="grpo",
        trainer=ComponentRef(name="stub"),
        model="m",
        suites=tuple(EvalSuite(name=name, plan=plan) for name in suites),
    )


def metrics(rows: list[dict[str, float]]) -> Path:
    folder = Path("trained")
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"step": step, "time": "t", "kind": "train", **row}) for step, row in enumerate(rows)]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_headlines_of_training(isolation: Path) -> None:
    folder = metrics([{"eval/a/accuracy": 0.525}, {"reward": 0.5, "loss": 1.0}, {"eval/a/accuracy": 0.925}])
    assert train_headline(train_plan("a"), folder) == "accuracy 0.525 -> 0.925"
    folder = metrics(
        [{"eval/a/accuracy": 0.5, "eval/b/accuracy": 0.1}, {"eval/a/accuracy": 0.6, "eval/b/accuracy": 0.2}]
    )
    assert train_headline(train_plan("a", "b"), folder) == "accuracy a 0.500 -> 0.600; b 0.100 -> 0.200"
    folder = metrics([{"reward": step / 10} for step in range(11)])
    assert train_headline(train_plan(), folder) == "reward 0.200 -> 0.800 (mean of 5 steps each)"
    assert train_headline(train_plan(), metrics([{"loss": 2.0}, {"loss": 1.0}])) == "loss 2.000 -> 1.000"
    assert train_headline(train_plan(), metrics([{"loss": 2.0}])) == "loss 2.000"
    assert train_headline(train_plan(), metrics([{}])) == "no step was made"
    equal = metrics([{"frac_reward_zero_std": 1.0, "reward": 0.0}])
    assert "take easier tasks" in str(no_spread_in_training(equal))
    assert no_spread_in_training(metrics([{"frac_reward_zero_std": 0.5}])) is None
