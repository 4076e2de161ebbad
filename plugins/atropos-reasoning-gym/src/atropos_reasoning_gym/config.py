"""The options of the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from atropos_cli.sdk import Config, Field, JsonDict


class ReasoningGymConfig(Config):
    """Which families, how hard, which seed."""

    families: tuple[str, ...] = Field(
        default=(), description="Task families, each NAME or NAME=WEIGHT (repeatable).  [default: all, in turn]"
    )
    exclude: tuple[str, ...] = Field(default=(), description="Families to leave out (repeatable).")
    options: dict[str, JsonDict] = Field(
        default={}, description='The package\'s own options of families, such as {"countdown": {"max_numbers": 5}}.'
    )
    level: int | None = Field(
        default=None, ge=0, description="Level of the package's curricula, from 0.  [default: its default options]"
    )
    level_mode: Literal["inclusive", "upper_bound"] = Field(
        default="inclusive", description="A level includes the easier ones, or only the hardest range."
    )
    max_level: int | None = Field(
        default=None, ge=0, description="Draw each task's level between --level (or 0) and this one."
    )
    level_every: int = Field(
        default=0, ge=0, description="Raise the level by one every so many tasks, up to --max-level; 0: never."
    )
    data_seed: int = Field(default=0, ge=0, lt=2**31, description="Another seed gives other tasks.")
    system_prompt: str | None = Field(
        default=None, description="System message; '' for none.  [default: asks for <answer> tags]"
    )
    thinking: bool = Field(default=False, description="Ask for thinking inside <think> and </think> before the answer.")
    scorer_timeout_s: float = Field(default=10.0, gt=0, le=600, description="Seconds a scorer may take for one answer.")
    make_timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="Seconds the package may take to make one task."
    )
    isolation: Literal["auto", "bubblewrap", "process", "unprotected"] = Field(
        default="auto",
        description="How the scorers are shut in; auto takes the best level of this machine, unprotected accepts that "
        "code in there can reach what you can.",
    )

    @field_validator("families")
    @classmethod
    def _weights(cls, families: tuple[str, ...]) -> tuple[str, ...]:
        for text in families:
            name, weight = split_weight(text)
            if not name or not 0 < weight < float("inf"):
                raise ValueError(f"{text!r}: give NAME or NAME=WEIGHT with a weight above 0")
        names = [split_weight(text)[0] for text in families]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise ValueError(f"family {doubled!r} is given twice")
        return families


def split_weight(text: str) -> tuple[str, float]:
    """(name, weight) of NAME or NAME=WEIGHT; the weight is nan when it is no number."""
    name, separator, weight = text.partition("=")
    if not separator:
        return name.strip(), 1.0
    try:
        return name.strip(), float(weight)
    except ValueError:
        return name.strip(), float("nan")
