"""With the real verl, in a Python of its own: its settings, data set and agent loop. What needs GPUs is not run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rule_backend
from atropos_verl.config import VerlConfig
from atropos_verl.settings import overrides
from in_process import Result
from token_rows import Row, rows_of, same

from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.distributed import Shape
from atropos_cli.sdk.runs import ComponentRef, Plan
from atropos_cli.sdk.training import EvalSuite, TrainPlan

INSIDE = Path(__file__).parents[1] / "src" / "atropos_verl" / "inside"
ASK_ALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import check
json.dump([check.check(one) for one in json.load(sys.stdin)], sys.stderr)
"""
MAIN = Path(__file__).with_name("verl_main.py")
SUPPORT = Path(rule_backend.__file__).parent
TEXTWORLD = ("textworld", "--env.max-steps", 8, "--env.registry-mode", "generated", "--env.difficulty", "easy")
TOOLS = ("tools-demo", "--env.kind", "calculator")


@pytest.fixture
def train(
    verl_python: str, model: Path, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """train("--env", ...) -> what `train grpo --trainer verl` did, with a machine of one GPU feigned."""
    from atropos_verl.running import VerlRunning

    from atropos_cli.distributed import trainer

    monkeypatch.setattr(trainer, "gpus_here", lambda: 1)
    # The program in the place of verl's main composes and validates the settings itself.
    monkeypatch.setattr(trainer, "ask", lambda *given, **more: {"engine": "1"})
    monkeypatch.setattr(VerlRunning, "main", (str(MAIN),))
    monkeypatch.setenv("CHECKED", str(tmp_path / "checked.json"))

    monkeypatch.setenv("RULE", str(SUPPORT))
    return lambda *words: cli(
        "train", "grpo", "--trainer", "verl", "--model", model, "--python", verl_python, "--env-workers", 1,
        "--max-prompt-length", 6000, "--max-response-length", 9000, "-o", tmp_path / "run", *words,
    )  # fmt: skip


@pytest.fixture
def gen(cli: Callable[..., Result], model: Path, tmp_path: Path) -> Callable[..., list[Row]]:
    """gen("textworld", ...) -> the sequences of the same episodes, as `gen` writes them."""

    def made(*words: Any) -> list[Row]:
        backend = f"{rule_backend.__file__}:Rule"
        ended = cli("gen", *words, "--backend", backend, "--model", model, "-o", tmp_path / "gen")
        assert ended.code == 0, ended.stderr
        return rows_of(tmp_path / "gen" / "groups.jsonl")

    return made


@pytest.mark.parametrize("episodes", [TEXTWORLD, TOOLS, (*TOOLS, "--env.tools-in", "prompt")])
def test_ten_episodes_as_gen_writes_them(
    train: Callable[..., Result], gen: Callable[..., list[Row]], tmp_path: Path, episodes: tuple[Any, ...]
) -> None:
    ended = train("--env", *episodes, "--steps", 1, "--prompts-per-step", 5, "--group-size", 2)
    assert ended.code == 0, ended.stderr
    wanted = gen(*episodes, "--limit", 5, "--group-size", 2)
    assert len(wanted) == 10
    assert len({row.reward for row in wanted}) > 1
    run = tmp_path / "run"
    assert same(rows_of(run / "groups.jsonl"), wanted)
    # verl's batch, which knows no places.
    (step,) = json.loads((tmp_path / "checked.json").read_text())
    given = [Row(0, *map(tuple, columns), reward) for *columns, reward in step["rows"]]
    assert same(sorted(given), sorted(row._replace(place=0) for row in wanted))
    (metrics,) = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert metrics["reward"] == pytest.approx(sum(row.reward for row in wanted) / 10, abs=1e-5)
    assert metrics["verl/perf/odd"] == 3.0
    assert (run / "model" / "model.safetensors").exists()


def test_settings_that_verl_takes_and_refuses(verl_python: str, model: Path, tmp_path: Path) -> None:
    """All in one process of verl's Python: an import takes longer than everything else."""
    combos: list[dict[str, Any]] = [{"algorithm": name} for name in ("grpo", "dr_grpo", "dapo", "gspo", "rloo")]
    combos += [{"beta": 0.01}, {"engine": "sglang"}, {"offload": True, "tensor_parallel": 2, "gpus": 4}]
    combos += [{"epsilon": 0.1, "epsilon_high": 0.3}, {"overrides": ("actor_rollout_ref.actor.grad_clip=0.5",)}]
    refused = [{"overrides": ("actor_rollout_ref.actor.grad_clop=1",)}, {"overrides": ("trainer.device=[",)}]
    place = tmp_path / "it's a = {place}, (of) [runs] #1"
    question = [settings(model, combo, place) for combo in (*combos, *refused)]
    asked = subprocess.run(
        [verl_python, "-c", ASK_ALL, str(INSIDE)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(asked.stderr[asked.stderr.rindex("[{") :])
    assert [answer.get("error") for answer in answers[: len(combos)]] == [None] * len(combos)
    assert all(answer["verl"] == "0.9.1" for answer in answers[: len(combos)])
    assert "grad_clop" in answers[-2]["error"]
    assert answers[-1]["error"]


def settings(model: Path, config: dict[str, Any], place: Path) -> list[str]:
    rollouts = Plan(
        atropos_version="0", environment=ComponentRef(name="arithmetic"), backend=ComponentRef(name="local"),
        model=str(model), sampling=Sampling(top_k=20, top_p=0.9), group_size=8,
    )  # fmt: skip
    plan = TrainPlan(
        atropos_version="0", method="grpo", learns="groups", trainer=ComponentRef(name="verl"), model=str(model),
        rollouts=rollouts, suites=(EvalSuite(name="x", plan=rollouts),),
    )  # fmt: skip
    made = VerlConfig.model_validate(config)
    return overrides(made, plan, rollouts, Shape(place, steps=7, nodes=2, gpus=made.gpus or 8))
