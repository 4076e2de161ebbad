"""The options of data-set environments."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import field_validator

from atropos_cli.sdk import Config, Field


class DatasetConfig(Config):
    """Where the rows come from, which fields hold what, and what the prompt looks like."""

    path: str | None = Field(
        default=None,
        description="Data: JSON lines (also .gz), a JSON array, parquet, a folder of save_to_disk; or scheme://FILE.",
    )
    hub: str | None = Field(default=None, description="Hub data set, such as openai/gsm8k.")
    config_name: str | None = Field(default=None, description="Config of the hub data set, where it has several.")
    data_split: str | None = Field(
        default=None,
        description="Split of the data, or a part: test, train[:100], [10%:20%].  [default: the run's --split]",
    )
    prompt_field: str = Field(
        default="prompt",
        description="Field with the problem: text, or messages; a.b reaches inside. "
        "system, history, instruction, context and input beside it are part of the prompt.",
    )
    answer_field: str = Field(default="answer", description="Field with the gold answer; '' for none.")
    id_field: str | None = Field(default=None, description="Field with the row's id.  [default: split and row number]")
    choices_field: str | None = Field(default=None, description="Field with the options of a multiple-choice problem.")
    shuffle_choices: bool = Field(default=True, description="Shuffle the options, by the task's id.")
    choice_seed: int = Field(default=0, description="Seed of the order of options.")
    info_fields: tuple[str, ...] = Field(
        default=(),
        description="Further fields to keep in task.info and out of the prompt, for rewards and reports (repeatable).",
    )
    answer_prefix: str | None = Field(
        default=None, description="The gold answer is what follows the last of these in the answer field."
    )
    answer_regex: str | None = Field(
        default=None, description="The gold answer is the last match (its first group) in the answer field."
    )
    system_prompt: str | None = Field(default=None, description="System message; '' for none.")
    thinking: bool = Field(default=False, description="Ask for thinking inside <think> and </think> before the answer.")
    prefill: str = Field(
        default="", description="Text that every reply begins with, such as '<think>'; its tokens are not trained on."
    )
    prompt_template: str | None = Field(default=None, description="Text around the problem, with {prompt} in it.")
    prompt_style: Literal["chat", "plain"] = Field(
        default="chat", description="chat: system, examples, question as messages; plain: one text ending in 'Answer:'."
    )
    few_shot: int = Field(
        default=0, ge=0, le=100, description="Solved examples before the problem; never the problem itself."
    )
    few_shot_split: str | None = Field(
        default=None, description="Split of the examples.  [default: the first rows of the same data]"
    )
    few_shot_path: str | None = Field(default=None, description="Local data with the examples, with the same fields.")
    few_shot_field: str | None = Field(
        default=None, description="Field with the text an example is answered with.  [default: the answer field]"
    )
    shuffle_seed: int | None = Field(default=None, description="Shuffle the rows with this seed.  [default: as stored]")

    @field_validator("answer_regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    @field_validator("prompt_template")
    @classmethod
    def _has_a_place(cls, template: str | None) -> str | None:
        if template is not None and "{prompt}" not in template:
            raise ValueError("the template has no {prompt}")
        return template


def preset(name: str, value: Any) -> Any:
    """The option of DatasetConfig with another default, for an environment that knows its data."""
    return Field(default=value, description=DatasetConfig.model_fields[name].description)
