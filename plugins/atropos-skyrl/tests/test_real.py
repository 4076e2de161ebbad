"""With the real SkyRL, in a Python of its own: its settings, trainer and a Ray on this CPU.

What needs GPUs is not run: its servers and the workers that hold the weights.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rule_backend
from atropos_skyrl.config import SkyrlConfig
from atropos_skyrl.settings import settings
from chat_model import TEMPLATE
from in_process import Result
from token_rows import Row, rows_of, same

from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.distributed import Shape
from atropos_cli.sdk.runs import ComponentRef, Plan
from atropos_cli.sdk.training import EvalSuite, TrainPlan

INSIDE = Path(__file__).parents[1] / "src" / "atropos_skyrl" / "inside"
ASK_ALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import check
json.dump([check.check(one) for one in json.load(sys.stdin)], open(sys.argv[2], "w"))
"""
MAIN = Path(__file__).with_name("skyrl_main.py")
SUPPORT = Path(rule_backend.__file__).parent
TEXTWORLD = ("textworld", "--env.max-steps", 8, "--env.registry-mode", "generated", "--env.difficulty", "easy")
TOOLS = ("tools-demo", "--env.kind", "calculator")


@pytest.fixture
def train(
    skyrl_python: str, model: Path, cli: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """train("--env", ...) -> what `train grpo --trainer skyrl` did, with a machine of one GPU and a vLLM feigned."""
    from atropos_skyrl.running import SkyrlRunning

    from atropos_cli.distributed import trainer

    def with_engine(*given: Any, **more: Any) -> dict[str, Any]:
        return {**asked(*given, **more), "engine": "1"}

    asked = trainer.ask
    monkeypatch.setattr(trainer, "ask", with_engine)
    monkeypatch.setattr(trainer, "gpus_here", lambda: 1)
    monkeypatch.setattr(SkyrlRunning, "main", (str(MAIN),))
    monkeypatch.setenv("CHECKED", str(tmp_path / "checked.json"))
    monkeypatch.setenv("RULE", str(SUPPORT))
    return lambda *words: cli(
        "train", "grpo", "--trainer", "skyrl", "--python", skyrl_python, "--env-workers", 2, "-o", tmp_path / "run",
        "--max-prompt-length", 6000, "--max-response-length", 9000, *words, *of_model(words, model),
    )  # fmt: skip


@pytest.fixture
def gen(cli: Callable[..., Result], model: Path, tmp_path: Path) -> Callable[..., list[Row]]:
    """gen("textworld", ...) -> the sequences of the same episodes, as `gen` writes them."""

    def made(*words: Any) -> list[Row]:
        backend = f"{rule_backend.__file__}:Rule"
        ended = cli("gen", *words, "--backend", backend, "-o", tmp_path / "gen", *of_model(words, model))
        assert ended.code == 0, ended.stderr
        return rows_of(tmp_path / "gen" / "groups.jsonl")

    return made


def of_model(words: tuple[Any, ...], model: Path) -> tuple[Any, ...]:
    return () if "--model" in words else ("--model", model)


def steps_of(tmp_path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((tmp_path / "checked.json").read_text())
    return found


def given_to_skyrl(step: dict[str, Any]) -> list[Row]:
    """The rows that the generator gave to SkyRL's trainer."""
    found = []
    columns = ("places", "prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs", "rewards")
    for place, prompt, response, mask, logprobs, reward in zip(*(step[name] for name in columns), strict=True):
        nothing = [0] * len(prompt)
        row = Row(place, (*prompt, *response), (*nothing, *mask), (*map(float, nothing), *logprobs), reward)
        found.append(row)
    return sorted(found)


@pytest.mark.parametrize("episodes", [TEXTWORLD, TOOLS, (*TOOLS, "--env.tools-in", "prompt")])
def test_ten_episodes_as_gen_writes_them(
    train: Callable[..., Result], gen: Callable[..., list[Row]], tmp_path: Path, episodes: tuple[Any, ...]
) -> None:
    ended = train("--env", *episodes, "--steps", 1, "--prompts-per-step", 5, "--group-size", 2)
    assert ended.code == 0, ended.stderr
    wanted = gen(*episodes, "--limit", 5, "--group-size", 2)
    assert len(wanted) == 10
    assert len({row.reward for row in wanted}) > 1
    (step,) = steps_of(tmp_path)
    assert same(given_to_skyrl(step), wanted)
    assert same(rows_of(tmp_path / "run" / "groups.jsonl"), wanted)
    # What SkyRL made of it for its workers: whole sequences, and as many trained tokens.
    assert sorted(map(tuple, step["sequences"])) == sorted(row.ids for row in wanted)
    assert sorted(step["trained"]) == sorted(sum(row.mask) for row in wanted)
    (metrics,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics["reward"] == pytest.approx(sum(row.reward for row in wanted) / 10)
    assert (metrics["loss"], metrics["grad_norm"], metrics["entropy"]) == (0.25, 0.5, 1.5)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def test_a_template_that_leaves_out_earlier_thinking(
    train: Callable[..., Result], gen: Callable[..., list[Row]], model: Path, tmp_path: Path
) -> None:
    """Each reply begins a sequence of its own: steps of a trajectory, whose advantage SkyRL gives to all of them."""
    thinks = shutil.copytree(model, tmp_path / "thinks")
    template = TEMPLATE.replace("{{ m['content'] }}", "{{ m['content'].split('walk.\n')[-1] }}")
    assert template != TEMPLATE
    (thinks / "chat_template.jinja").write_text(template)
    words = (*TEXTWORLD, "--model", thinks)
    ended = train("--env", *words, "--steps", 1, "--prompts-per-step", 5, "--group-size", 2)
    assert ended.code == 0, ended.stderr
    wanted = gen(*words, "--limit", 5, "--group-size", 2)
    assert len(wanted) > 20
    (step,) = steps_of(tmp_path)
    assert same(given_to_skyrl(step), wanted)
    assert sum(step["is_last_step"]) == 10
    assert sorted(map(tuple, step["sequences"])) == sorted(row.ids for row in wanted)
    assert sorted(step["trained"]) == sorted(sum(row.mask) for row in wanted)
    groups = [json.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_text().splitlines()]
    rewards = [rollout["reward"] for group in groups for rollout in group["rollouts"]]
    (metrics,) = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics["reward"] == pytest.approx(sum(rewards) / 10)


def test_evaluations_checkpoints_and_resumption(train: Callable[..., Result], tmp_path: Path) -> None:
    words = ("--env", "arithmetic", "--prompts-per-step", 2, "--group-size", 2, "--save-every", 1)
    words = (*words, "--eval", "arithmetic_eval:limit=3", "--steps", 3)
    (tmp_path / "die").write_text("2")
    broken = train(*words)
    assert broken.code == 8
    assert "after step 1 of 3" in broken.stderr
    run = tmp_path / "run"
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-1"]
    ended = train(*words, "--resume")
    assert ended.code == 0, ended.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3]
    assert [row["step"] for row in rows if "eval/arithmetic_eval/accuracy" in row][-1] == 3
    groups = [json.loads(line) for line in (run / "groups.jsonl").read_text().splitlines()]
    places = [int(group["group_id"].rpartition("-")[2]) for group in groups]
    assert sorted(places) == [0, 1, 2, 3, 4, 5]
    assert [path.name for path in (run / "skyrl" / "exports").glob("global_step_*")] == ["global_step_3"]
    assert (run / "model" / "model.safetensors").exists()


def test_settings_that_skyrl_takes_and_refuses(skyrl_python: str, model: Path, tmp_path: Path) -> None:
    """All in one process of SkyRL's Python: an import takes longer than everything else."""
    combos: list[dict[str, Any]] = [{"algorithm": name} for name in ("grpo", "dr_grpo", "dapo", "gspo", "rloo")]
    combos += [{"beta": 0.01}, {"strategy": "megatron", "gpus": 8, "offload": True}]
    combos += [{"offload": True, "tensor_parallel": 2, "gpus": 4}, {"lora_r": 16, "epsilon": 0.1, "epsilon_high": 0.3}]
    combos += [{"overrides": ("trainer.policy.optimizer_config.max_grad_norm=0.5",)}]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"overrides": ("trainer.policy.optimizer_config.max_grad_nrom=1",)}, "has no field 'max_grad_nrom'"),
        ({"overrides": ("generator.chat_template=5",)}, "generator.chat_template"),
        ({"overrides": ("trainer.policy.optimizer_config.max_grad_norm=high",)}, "max_grad_norm: 'high' is not float"),
        ({"overrides": ("trainer.seed=[",)}, ""),
        ({"overrides": ("trainer.algorithm.advantage_estimator=reinforce++",)}, "step_wise_trajectories"),
        ({"gpus": 5}, "the 64 rollouts of a step cannot be split evenly over 10 GPUs"),
    ]
    place = tmp_path / 'it\'s a = {place}, (of) [runs] #1: "x"'
    question = [made(model, combo, place) for combo in (*combos, *(combo for combo, _ in refused))]
    answer = tmp_path / "answer.json"
    subprocess.run(
        [skyrl_python, "-c", ASK_ALL, str(INSIDE), str(answer)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(answer.read_text())
    assert [one.get("error") for one in answers[: len(combos)]] == [None] * len(combos)
    assert {one["skyrl"] for one in answers[: len(combos)]} < {"0.3.0", "0.4.0"}
    for found, (combo, said) in zip(answers[len(combos) :], refused, strict=True):
        assert said in found["error"], combo


def made(model: Path, config: dict[str, Any], place: Path) -> list[str]:
    rollouts = Plan(
        atropos_version="0", environment=ComponentRef(name="arithmetic"), backend=ComponentRef(name="local"),
        model=str(model), sampling=Sampling(top_k=20, top_p=0.9, min_p=0.05), group_size=8,
    )  # fmt: skip
    plan = TrainPlan(
        atropos_version="0", method="grpo", learns="groups", trainer=ComponentRef(name="skyrl"), model=str(model),
        rollouts=rollouts, suites=(EvalSuite(name="x", plan=rollouts),),
    )  # fmt: skip
    options = SkyrlConfig.model_validate(config)
    return settings(options, plan, rollouts, Shape(place, steps=7, nodes=2, gpus=options.gpus or 8))
