"""The options of the environment."""

from __future__ import annotations

from typing import Literal

from atropos_cli.sdk import Config, Field, JsonDict


class BootcampConfig(Config):
    """Which bootcamps, with which parameters, and how replies are scored."""

    tasks: tuple[str, ...] = Field(
        default=("RandomTask",),
        description="Bootcamps by name, with or without the ending bootcamp (repeatable); RandomTask: all of them, "
        "and another one where one fails.",
    )
    exclude: tuple[str, ...] = Field(default=("KodCodebootcamp",), description="Bootcamps to leave out (repeatable).")
    params: dict[str, JsonDict] = Field(
        default={}, description='Arguments of bootcamps, such as {"Mazebootcamp": {"size": 5}}.'
    )
    package: str = Field(default="internbootcamp", description="Package with the bootcamps' classes.")
    package_path: str | None = Field(
        default=None, description="Folder that holds the package, such as a checkout.  [default: where Python finds it]"
    )
    data_seed: int = Field(default=0, description="Another seed gives other tasks.")
    thinking: bool = Field(default=True, description="Ask for thinking inside <think> and </think> before the answer.")
    require_thinking: bool = Field(
        default=False, description="A reply without closed thinking of --min-thinking characters is wrong."
    )
    min_thinking: int = Field(default=50, ge=0, description="Characters that required thinking has at least.")
    correct_reward: float = Field(default=1.0, description="Reward of a verified reply.")
    incorrect_reward: float = Field(default=-0.5, description="Reward of any other reply.")
    format_bonus: float = Field(
        default=0.2, ge=0, description="Added for a wrong reply in which the bootcamp finds an answer."
    )
    timeout_s: float = Field(default=5.0, gt=0, le=600, description="Seconds for making one task or one verdict.")
    isolation: Literal["auto", "bubblewrap", "process", "unprotected"] = Field(
        default="auto",
        description="How bootcamps are shut in; auto takes the best level of this machine, unprotected accepts that "
        "code in there can reach what you can.",
    )
