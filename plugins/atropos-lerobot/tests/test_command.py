"""The arguments of lerobot-train. Whether LeRobot takes them is asked in test_real.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_lerobot import command
from atropos_lerobot.config import LeRobotConfig
from atropos_lerobot.dataset import Found

from atropos_cli.sdk import AtroposError
from atropos_cli.sdk.runs import ComponentRef
from atropos_cli.sdk.training import TrainPlan

N15, N17 = (0, 4), (0, 6)


def plan_of(method: str = "lerobot", model: str = "") -> TrainPlan:
    trainer = ComponentRef(name="lerobot", dist="atropos-lerobot", version="0")
    return TrainPlan(atropos_version="0", method=method, learns="own", trainer=trainer, model=model, seed=7)


def order_of(plan: TrainPlan, release: tuple[int, int] = N17, **options: Any) -> command.Order:
    return command.Order(plan, LeRobotConfig(**options), Found("me/so101", Path("/d"), {}), release, 100, 10)


def arguments(*given: Any, **options: Any) -> list[str]:
    return command.arguments(order_of(*given, **options), Path("RUN/lerobot"))


def test_act() -> None:
    words = arguments(plan_of(), num_workers=0, device="cpu", set=("policy.chunk_size=20", "--policy.dropout=0.2"))
    assert words == [
        "--dataset.repo_id=me/so101", "--dataset.root=/d", "--policy.type=act", "--policy.device=cpu",
        "--policy.push_to_hub=false", "--output_dir=RUN/lerobot", "--job_name=lerobot", "--seed=7", "--batch_size=8",
        "--num_workers=0", "--steps=100", "--save_freq=10", "--log_freq=1", "--env_eval_freq=0",
        "--wandb.enable=false", "--policy.chunk_size=20", "--policy.dropout=0.2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tune", "trained"),
    [
        ((), {"projector", "diffusion_model"}),
        (("lite",), {"projector", "diffusion_model"}),
        (("projector",), {"projector"}),
        (("lite", "visual"), {"projector", "diffusion_model", "visual"}),
        (("llm", "visual", "diffusion", "projector"), {"projector", "diffusion_model", "visual", "llm"}),
    ],
)
def test_the_parts_of_groot(tune: tuple[str, ...], trained: set[str]) -> None:
    words = arguments(plan_of("groot"), tune=tune)
    said = {word.removeprefix("--policy.tune_"): word for word in words if word.startswith("--policy.tune_")}
    assert {name.partition("=")[0] for name in said if name.endswith("=true")} == trained
    assert len(said) == 4  # the frozen ones are said, too


def test_both_generations_of_groot() -> None:
    new, old = arguments(plan_of("groot")), arguments(plan_of("groot"), N15)
    assert f"--policy.base_model_path={command.N17}" in new
    assert f"--policy.base_model_path={command.N15}" in old
    assert "--batch_size=32" in new
    assert "--policy.embodiment_tag=new_embodiment" in new
    # The warm-up of N1.7 is a share of this number, whatever number of steps is made.
    assert "--policy.max_steps=100" in new
    assert not any("max_steps" in word for word in old)
    assert ("--env_eval_freq=0" in new, "--eval_freq=0" in old) == (True, True)
    assert "--env_eval_freq=0" not in old


def test_weights_to_start_from(tmp_path: Path) -> None:
    assert "--policy.path=lerobot/smolvla_base" in arguments(plan_of(), policy="smolvla")
    assert "--policy.path=me/act" in arguments(plan_of(model="me/act"))
    assert not any(word.startswith("--policy.type") for word in arguments(plan_of(model="me/act")))
    (tmp_path / "config.json").write_text(json.dumps({"type": "groot"}))
    assert f"--policy.path={tmp_path}" in arguments(plan_of("groot", str(tmp_path)))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gr00t"}))
    assert f"--policy.base_model_path={tmp_path}" in arguments(plan_of("groot", str(tmp_path)))


def test_the_rest_of_a_training() -> None:
    words = command.resumed(order_of(plan_of(), device="cuda"), Path("RUN/lerobot"), Path("RUN/checkpoints/step-4"))
    assert words == [
        "--config_path=RUN/checkpoints/step-4/pretrained_model/train_config.json", "--resume=true",
        "--output_dir=RUN/lerobot", "--policy.device=cuda", "--steps=100", "--save_freq=10", "--log_freq=1",
        "--env_eval_freq=0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("policy.chunk_size", "is not NAME=VALUE"),
        ("=5", "is not NAME=VALUE"),
        ("a b=5", "is not NAME=VALUE"),
        ("steps=5", "use --steps"),
        ("--policy.tune_llm=true", "use --tune"),
        ("output_dir=/tmp", "use --output"),
        ("log_freq=100", "leave it out"),
        ("wandb.enable=true", "use --track"),
    ],
)
def test_what_the_run_decides(text: str, told: str) -> None:
    with pytest.raises(AtroposError) as raised:
        command.own_arguments(LeRobotConfig(set=(text,)))
    assert told in f"{raised.value.message} {raised.value.hint}"


def test_given_twice() -> None:
    with pytest.raises(AtroposError, match="given twice"):
        command.own_arguments(LeRobotConfig(set=("policy.chunk_size=5", "policy.chunk_size=6")))


def test_options_of_another_policy() -> None:
    with pytest.raises(AtroposError, match="parts of GR00T, and act is trained whole"):
        arguments(plan_of(), tune=("lite",))
    with pytest.raises(AtroposError, match="train groot trains GR00T, not act"):
        arguments(plan_of("groot"), policy="act")


def test_values_are_no_arguments_of_their_own() -> None:
    words = arguments(plan_of(), embodiment="x --steps=1", set=("dataset.revision=a --steps=1",))
    assert [word for word in words if word.startswith("--steps")] == ["--steps=100"]
    assert words[-1] == "--dataset.revision=a --steps=1"
