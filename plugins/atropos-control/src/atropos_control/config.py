"""Options of the trainer `control`: given ones, else those of a preset for the environment, else the method's."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from atropos_cli.sdk import Config, ConfigError, Field
from atropos_cli.sdk.training import TrainPlan


class ControlConfig(Config):
    """None: as the preset of the environment has it, else the default of the method, both in presets.toml."""

    preset: Literal["auto", "none"] = Field(
        default="auto", description="auto: values for this environment; none: the method's own."
    )
    num_envs: int | None = Field(default=None, ge=1, le=1024, description="Environments that step together.")
    subprocesses: bool | None = Field(
        default=None, description="Each environment in a process of its own; default: unless its steps are cheap."
    )
    rollout_steps: int | None = Field(
        default=None, ge=1, description="ppo, sac: steps of each environment that make one training step."
    )
    layers: tuple[int, ...] | None = Field(default=None, description="Sizes of the hidden layers, repeatable.")
    learning_rate: float | None = Field(default=None, gt=0, description="Of the optimiser.")
    anneal: bool | None = Field(default=None, description="ppo, grpo: the rate falls linearly to 0 at the last step.")
    batch_size: int | None = Field(default=None, ge=2, description="Environment steps of one gradient step.")
    n_epochs: int | None = Field(
        default=None, ge=1, description="ppo, grpo: how often a training step goes through its data."
    )
    gamma: float | None = Field(default=None, ge=0, le=1, description="ppo, sac: discount of a reward per step.")
    gae_lambda: float | None = Field(default=None, ge=0, le=1, description="ppo: of its advantage estimator.")
    clip_range: float | None = Field(default=None, gt=0, lt=1, description="ppo, grpo: bound of the ratio's change.")
    ent_coef: float | None = Field(
        default=None, ge=0, description="ppo, sac, grpo: weight of the entropy; sac learns it where there is none."
    )
    max_grad_norm: float | None = Field(default=None, gt=0, description="ppo, grpo: gradients are cut to this norm.")
    her: bool | None = Field(
        default=None, description="sac: learn from reached goals too (HER); default: where observations have goals."
    )
    her_goals: int | None = Field(default=None, ge=1, description="sac: reached goals for each one that was set.")
    buffer_size: int | None = Field(default=None, ge=100, description="sac: steps that are kept to learn from.")
    learning_starts: int | None = Field(default=None, ge=1, description="sac: random steps before it learns.")
    gradient_steps: int | None = Field(
        default=None, ge=1, description="sac: per training step; default: as many as environment steps."
    )
    tau: float | None = Field(default=None, gt=0, le=1, description="sac: how fast the target network follows.")
    videos: int = Field(default=1, ge=0, le=16, description="Episodes of each evaluation that are filmed.")


RUN = ("steps", "eval_every", "group_size", "prompts_per_step")
"""Values of a preset that are settings of the run."""


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("presets.toml").read_text("utf-8"))


def preset(config: ControlConfig, method: str, name: str) -> dict[str, Any]:
    """All values for a method on an environment, by its id without version, before given ones."""
    table = _table()
    own = table[method].get(name, {}) if config.preset == "auto" else {}
    return {**table[method]["default"], **own}


def resolved(config: ControlConfig, method: str) -> dict[str, Any]:
    """The options of a plan, which proposed() has completed: whatever the presets are now, they are not asked again.

    Raises ConfigError for one that was given and means nothing to the method, and for one that is missing.
    """
    given = {key: value for key in config.model_fields_set if (value := getattr(config, key)) is not None}
    for key in given:
        about = type(config).model_fields[key].description or ""
        methods, colon, _ = about.partition(":")
        if colon and method not in methods.split(", ") and set(methods.split(", ")) & _METHODS:
            raise ConfigError(f"--{key.replace('_', '-')} is for {methods}, not for {method}", hint="leave it out")
    if lacking := [key for key in _table()[method]["default"] if key not in RUN and key not in given]:
        raise ConfigError(
            f"the plan does not say --{lacking[0].replace('_', '-')}: another version made it",
            hint="resume it with that version, or start a new run",
        )
    return given


_METHODS = frozenset({"ppo", "sac", "grpo"})


def proposed(
    config: ControlConfig, method: str, name: str, given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings of the run, own options) of the preset that were not given, with an evaluation every tenth step.

    A resumed run has those that it was started with: presets may be others by now.
    """
    values = _kept(config, method, given) or preset(config, method, name)
    steps = given.get("steps") or values["steps"]
    values = {"eval_every": max(1, int(steps) // 10), **values}
    options = {key: value for key, value in values.items() if key not in RUN and getattr(config, key) is None}
    return {key: value for key, value in values.items() if key in RUN}, options


def _kept(config: ControlConfig, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the resumed run's plan has; nothing where there is none, or it is of something else, which is refused."""
    plan: TrainPlan | None = given.get("resumed")
    if plan is None or plan.rollouts is None or plan.rollouts.environment.name != given["env"]:
        return {}
    kept = plan.trainer.config
    if (plan.method, plan.trainer.name, kept.get("preset")) != (method, "control", config.preset):
        return {}
    run = {"steps": plan.steps, "eval_every": plan.eval_every, "prompts_per_step": plan.prompts_per_step}
    run["group_size"] = plan.rollouts.group_size
    names = type(config).model_fields.keys() - {"preset", "videos"}
    found = {**run, **{key: kept.get(key) for key in names}}
    return {key: value for key, value in found.items() if value is not None}
