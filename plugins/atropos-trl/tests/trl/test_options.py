"""From what is given to what counts: presets, --data, and options that would have no effect. Imports nothing heavy."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from atropos_training.build import build_train_plan
from atropos_training.settings import TrainSettings
from atropos_trl.config import TrlConfig
from atropos_trl.options import completion_limit, generations, temperature
from atropos_trl.presets import resolve
from atropos_trl.recipes import RECIPES
from atropos_trl.sizes import batch_sizes
from trl_support import make_plan, make_trainer

from atropos_cli.config.settings import GenSettings
from atropos_cli.console.session import Session
from atropos_cli.sdk import METHODS, AtroposError, ConfigError, UsageError
from atropos_cli.sdk.training import TrainPlan

ENV = "arithmetic"


def built(given: dict[str, Any], train: dict[str, Any], options: dict[str, Any]) -> tuple[TrainPlan, TrlConfig]:
    """As `atropos train grpo` builds it from flags."""
    settings = GenSettings.model_validate({"model": "m", "rewards": ("exact_match",), **given})
    if "env" in train:
        settings = settings.model_copy(update={"rewards": ()})
    plan, trainer = build_train_plan(
        METHODS["grpo"], settings, TrainSettings.model_validate(train), {"trainer": options}, Session().registry
    )
    config: TrlConfig = trainer.config
    assert plan.trainer.config == config.model_dump(mode="json")
    return plan, config


def numbers(plan: TrainPlan, config: TrlConfig) -> tuple[float, int, int]:
    return temperature(config, plan), generations(config, plan), batch_sizes(config, plan).rows


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "a", "answer": "1"}) + "\n")
    return str(path)


@pytest.mark.parametrize("live", [True, False])
def test_the_arithmetic_preset_is_the_whole_recipe(data: str, live: bool) -> None:
    train = {"env": ENV} if live else {"data": (data,)}
    preset = {"preset": "arithmetic"}
    assert numbers(*built({}, train, preset)) == (0.7, 16, 64)
    assert numbers(*built({"group_size": 8}, train, preset)) == (0.7, 8, 64)
    given = {"sampling": {"temperature": 0.9, "max_tokens": 32}, "group_size": 4}
    plan, config = built(given, {**train, "prompts_per_step": 2}, preset)
    assert numbers(plan, config) == (0.9, 4, 8)
    assert completion_limit(config, plan) == 32
    assert numbers(*built({}, train, {})) == (1.0, 8, 64)


@pytest.mark.parametrize("name", RECIPES)
def test_a_preset_is_in_the_plan_where_nothing_else_is_given(data: str, name: str) -> None:
    recipe = RECIPES[name]
    plan, config = built({}, {"env": ENV}, {"preset": name})
    assert {option: getattr(config, option) for option in recipe.options} == recipe.options
    assert plan.rollouts is not None
    assert plan.rollouts.group_size == recipe.sampling.get("group_size", 8)
    assert recipe.rows is None or batch_sizes(config, plan).rows == recipe.rows
    resolved = resolve(config, plan)
    assert recipe.rate is None or resolved.learning_rate == recipe.rate
    stored = resolve(TrlConfig.model_validate(plan.trainer.config), plan)  # a resumed run reads the plan
    assert stored == resolved
    option = next(iter(recipe.options))
    given = {"algorithm": "gspo", "beta": 0.5, "epsilon_high": 0.4, "lora_r": 4, "gradient_checkpointing": True}[option]
    assert getattr(built({}, {"env": ENV}, {"preset": name, option: given})[1], option) == given


def test_epochs_and_steps_exclude_each_other(data: str) -> None:
    assert built({}, {"data": (data,), "epochs": 3}, {})[0].epochs == 3
    with pytest.raises(UsageError, match="both say how long"):
        built({}, {"data": (data,), "epochs": 3, "steps": 5}, {})


def test_data_runs_take_the_runs_sampling(data: str) -> None:
    given = {"sampling": {"temperature": 0.5, "max_tokens": 12, "top_k": 5}, "group_size": 4}
    plan, config = built(given, {"data": (data,)}, {})
    assert (temperature(config, plan), generations(config, plan), completion_limit(config, plan)) == (0.5, 4, 12)
    assert config.extra == {"top_k": 5}
    own = {"temperature": 0.8, "num_generations": 2, "max_completion_length": 7}
    plan, config = built(given, {"data": (data,)}, own)
    assert (temperature(config, plan), generations(config, plan), completion_limit(config, plan)) == (0.8, 2, 7)
    plan, config = built({}, {"data": (data,)}, {})
    assert (temperature(config, plan), generations(config, plan), completion_limit(config, plan)) == (1.0, 8, 256)
    with pytest.raises(ConfigError, match="--stop"):
        built({"sampling": {"stop": ("x",)}}, {"data": (data,)}, {})


def test_stored_groups_take_the_runs_temperature(data: str) -> None:
    def config(options: dict[str, Any]) -> Any:
        settings = GenSettings.model_validate({"model": "m", "sampling": {"temperature": 0.5, "max_tokens": 9}})
        train = TrainSettings(data=(data,), trainer="native")
        return build_train_plan(METHODS["grpo"], settings, train, {"trainer": options}, Session().registry)[1].config

    assert (config({}).temperature, config({}).max_completion_length) == (0.5, None)
    assert config({"temperature": 0.8}).temperature == 0.8
    assert config({"algorithm": "dr_grpo"}).max_completion_length == 9


@pytest.mark.parametrize(
    ("fields", "config", "option", "hint"),
    [
        ({"environment": ENV}, {"num_generations": 4}, "--num-generations", "--group-size 4"),
        ({"environment": ENV}, {"max_length": 9}, "--max-length", "--max-prompt-tokens"),
        ({"environment": ENV}, {"temperature": 0.5}, "--trainer.temperature", "--temperature 0.5"),
        ({"environment": ENV}, {"max_completion_length": 9}, "--max-completion-length", "--max-tokens 9"),
        ({"environment": ENV}, {"extra": {"top_k": 5}}, "'top_k'", "--top-k"),
        ({"environment": ENV}, {"extra": {"use_vllm": True}}, "'use_vllm'", "--base-url"),
        ({"data": ("d",)}, {"behaviour_logprobs": True}, "--behaviour-logprobs", "leave it out"),
        ({"method": "sft"}, {"algorithm": "dapo"}, "--algorithm", "for grpo"),
        ({"method": "sft"}, {"num_iterations": 3}, "--num-iterations", "for grpo"),
        ({"method": "sft"}, {"mask_truncated": True}, "--mask-truncated", "for grpo"),
        ({"method": "sft"}, {"beta": 0.5}, "--beta", "grpo, dpo and kto"),
        ({"method": "dpo"}, {"max_prompt_tokens": 5}, "--max-prompt-tokens", "--max-length"),
    ],
)
def test_what_would_have_no_effect_is_refused(fields: Any, config: Any, option: str, hint: str) -> None:
    plan = make_plan("m", config=config, **fields)
    with pytest.raises(ConfigError, match="means nothing") as caught:
        make_trainer(plan).check(plan)
    assert option in caught.value.message
    assert hint in str(caught.value.hint)


def test_what_counts_is_taken() -> None:
    for fields, config in (
        ({"method": "dpo"}, {"beta": 0.5}),
        ({"environment": ENV}, {"algorithm": "dr_grpo", "max_completion_length": 9}),
        ({"data": ("d",)}, {"num_generations": 4, "temperature": 0.5, "extra": {"top_k": 5}}),
    ):
        plan = make_plan("m", config=config, **fields)  # type: ignore[arg-type]
        make_trainer(plan).check(plan)


def test_use_vllm_without_vllm() -> None:
    plan = make_plan("m", data=("d",), config={"extra": {"use_vllm": True}})
    with pytest.raises(ConfigError, match="needs the package vllm"):
        make_trainer(plan).check(plan)


def test_the_hint_about_the_context_names_the_option_that_counts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 64}))
    for fields, option in (({"environment": ENV, "max_tokens": 64}, "--max-tokens 63"), ({"data": ("d",)}, "")):
        plan = make_plan(tmp_path, **fields)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="do not fit the model's context of 64") as caught:
            make_trainer(plan).check(plan)
        assert caught.value.hint == (option or "--max-completion-length 63")


def test_batches_beyond_all_measure() -> None:
    """In no time, and refused like a model that is too large."""
    plan = make_plan("m", environment=ENV, group_size=8, prompts_per_step=3_000_000_000)
    began = time.process_time()
    assert batch_sizes(TrlConfig(), plan).micro == 32
    with pytest.raises(AtroposError, match="24000000000 completions of up to 8 tokens in one step take about"):
        make_trainer(plan).check(plan)
    odd = TrlConfig(per_device_train_batch_size=7)
    with pytest.raises(ConfigError) as caught:
        batch_sizes(odd, plan)
    assert caught.value.hint is not None
    assert "--prompts-per-step 2999999996 or 3000000003" in caught.value.hint
    assert time.process_time() - began < 1
    with pytest.raises(ConfigError) as caught:
        batch_sizes(TrlConfig(), plan, world=7)
    assert caught.value.hint == "--prompts-per-step 2999999996 or 3000000003"


def test_disk_for_all_checkpoints_of_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those to keep, the best, the one being written; fewer where the run does not write so many."""
    from atropos_trl import checks

    what, size = checks.Footprint(lora=False, reference=False), 1_000_000
    one, final = what.checkpoint(size), size * 4
    suites = (built({}, {"env": ENV, "evals": (ENV,)}, {})[0]).suites

    def enough(free: int, **fields: Any) -> bool:
        monkeypatch.setattr(checks, "free_disk", lambda folder: free)
        try:
            checks.check_disk(tmp_path, size, what, make_plan("m", environment=ENV, **fields))
        except ConfigError:
            return False
        return True

    plan = {"keep_checkpoints": 5, "suites": suites, "steps": 100, "save_every": 1}
    assert enough(7 * one + final, **plan)
    assert not enough(7 * one + final - 1, **plan)
    assert enough(6 * one + final, **{**plan, "suites": ()})
    assert enough(2 * one + final, **{**plan, "suites": (), "steps": 2})
    for step in range(5):
        (tmp_path / "checkpoints" / f"step-{step}").mkdir(parents=True)
    assert enough(2 * one + final, **plan)
