"""metrics.jsonl and samples.jsonl: whole lines only, no step twice, whatever happened to the run before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atropos_cli.errors import TrainerError
from atropos_cli.training.metrics import MetricsLog, read_metrics, series
from atropos_cli.training.samples import Samples, read_samples


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def begun(folder: Path, steps: int) -> None:
    log = MetricsLog(folder)
    log.evaluation(0, {"eval/sums/accuracy": 0.25})
    for step in range(1, steps + 1):
        log.write(step, {"loss": 1 / step})
        if step % 2 == 0:
            log.evaluation(step, {"eval/sums/accuracy": step / 10})
    log.close()


def test_values_are_finite_or_null(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    written = log.write(1, {"loss": float("nan"), "kl": float("inf"), "num_tokens": 7, "reward": 0.1})
    log.close()
    assert written == {"loss": None, "kl": None, "num_tokens": 7, "reward": 0.1}
    (row,) = lines(tmp_path / "metrics.jsonl")
    assert {key: row[key] for key in ("step", "loss", "kl", "num_tokens", "reward")} == {"step": 1, **written}
    assert row["time"].endswith("+00:00")


def test_what_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="'loss' is not a number: 'high'"):
        MetricsLog(tmp_path).write(1, {"loss": "high"})  # type: ignore[dict-item]


def test_a_resumed_run_has_no_step_twice(tmp_path: Path) -> None:
    begun(tmp_path, 7)
    log = MetricsLog(tmp_path)
    log.write(5, {"loss": 50.0})  # the checkpoint was of step 4
    log.write(6, {"loss": 60.0})
    log.close()
    rows = read_metrics(tmp_path)
    assert [step for step, _ in rows] == [0, 1, 2, 3, 4, 5, 6]
    assert series(rows, "loss")[-3:] == [(4, 0.25), (5, 50.0), (6, 60.0)]
    assert series(rows, "eval/sums/accuracy") == [(0, 0.25), (2, 0.2), (4, 0.4)]
    # What was cut is kept beside the file.
    torn = (tmp_path / "metrics.jsonl.torn").read_text().split("\n")
    assert [json.loads(line)["step"] for line in torn if line] == [5, 6, 6, 7]


def test_an_evaluation_made_again_keeps_the_step_it_belongs_to(tmp_path: Path) -> None:
    begun(tmp_path, 4)
    log = MetricsLog(tmp_path)
    log.evaluation(4, {"eval/sums/accuracy": 0.9})
    log.close()
    assert read_metrics(tmp_path)[-1] == (4, {"loss": 0.25, "eval/sums/accuracy": 0.9})


def test_rewind_before_anything_is_written(tmp_path: Path) -> None:
    begun(tmp_path, 5)
    log = MetricsLog(tmp_path)
    log.rewind(2)
    log.close()
    assert [step for step, _ in read_metrics(tmp_path)] == [0, 1, 2]
    assert "eval/sums/accuracy" in read_metrics(tmp_path)[-1][1]


@pytest.mark.parametrize(
    "torn", [b'{"step": 6, "lo', b'{"step": 6, "loss": 1.0}', b"\x00\x00\x00\n", b'{"loss": 1.0}\n']
)
def test_a_torn_end_is_healed(tmp_path: Path, torn: bytes) -> None:
    begun(tmp_path, 5)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(torn)
    assert read_metrics(tmp_path)[-1][0] == 5  # a reader beside a running writer sees whole lines only
    log = MetricsLog(tmp_path)
    log.write(6, {"loss": 0.5})
    log.close()
    assert [step for step, _ in read_metrics(tmp_path)] == [0, 1, 2, 3, 4, 5, 6]
    assert len(lines(tmp_path / "metrics.jsonl")) == 1 + 5 + 2 + 1
    assert torn.strip(b"\n") in (tmp_path / "metrics.jsonl.torn").read_bytes()


def test_samples_are_bounded_and_spread(tmp_path: Path) -> None:
    samples = Samples(tmp_path, per_step=3, characters=10)
    rows = [{"prompt": f"p{i}", "completion": "x" * 30, "expected": ["a"], "reward": float("nan")} for i in range(9)]
    kept = samples.write(1, rows)
    samples.write(1, [{"prompt": "e", "completion": "\ud800", "correct": True}], suite="sums")
    samples.close()
    assert [row["prompt"] for row in kept] == ["p0", "p3", "p6"]
    assert kept[0] == {
        "step": 1,
        "prompt": "p0",
        "completion": "x" * 10 + " ... [20 more characters]",
        "extracted": None,
        "expected": '["a"]',
        "reward": None,
        "correct": None,
    }
    assert read_samples(tmp_path)[-1] | {"prompt": "e"} == read_samples(tmp_path)[-1]
    assert read_samples(tmp_path)[-1]["suite"] == "sums"
    assert read_samples(tmp_path)[-1]["completion"] == "\ufffd"


def test_samples_of_steps_made_again_are_replaced(tmp_path: Path) -> None:
    samples = Samples(tmp_path)
    for step in (1, 2, 3):
        samples.write(step, [{"prompt": "a"}, {"prompt": "b"}])
    samples.close()
    samples = Samples(tmp_path)
    samples.write(3, [{"prompt": "c"}])
    samples.write(3, [{"prompt": "d"}], suite="sums")
    samples.close()
    assert [(row["step"], row["prompt"]) for row in read_samples(tmp_path)] == [
        (1, "a"),
        (1, "b"),
        (2, "a"),
        (2, "b"),
        (3, "c"),
        (3, "d"),
    ]
