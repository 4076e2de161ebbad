"""Data sets that are ready to use: their place on the hub, their fields, and how answers are asked for.

atropos eval gsm8k                             from the hub
atropos eval gsm8k --path test.jsonl           from a file with the same fields
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from atropos_cli.sdk import Task
from atropos_datasets.config import DatasetConfig, preset
from atropos_datasets.environment import DatasetEnvironment

_BOXED = "Solve the problem step by step. Put the final answer inside \\boxed{}."
_NUMBER = re.compile(r"[-+\u2212]?\s*\$?\s*(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?\s*%?")


class MultipleChoiceConfig(DatasetConfig):
    prompt_field: str = preset("prompt_field", "question")
    choices_field: str | None = preset("choices_field", "choices")


class MultipleChoice(DatasetEnvironment):
    """Multiple choice with lettered options, shuffled by the task's id."""

    name = "multiple-choice"
    Config = MultipleChoiceConfig
    rewards = ("choice",)


class Gsm8kConfig(DatasetConfig):
    hub: str | None = preset("hub", "openai/gsm8k")
    config_name: str | None = preset("config_name", "main")
    prompt_field: str = preset("prompt_field", "question")
    system_prompt: str | None = preset(
        "system_prompt",
        "Solve the problem step by step. End with a line that holds #### and the final number, such as: #### 42",
    )


class Gsm8k(DatasetEnvironment):
    """GSM8K. The answer is kept as it stands in the data, a solution that ends in #### and the number."""

    name = "gsm8k"
    Config = Gsm8kConfig
    rewards = ("gsm8k", "gsm8k_strict=0")
    splits: ClassVar[Sequence[str]] = ("train", "test")

    def validate(self, task: Task) -> bool | None:
        """False for a gold answer that is no number; else None."""
        gold = str(task.answer).rpartition("####")[2].strip()
        return None if _NUMBER.fullmatch(gold) else False


class Math500Config(DatasetConfig):
    hub: str | None = preset("hub", "HuggingFaceH4/MATH-500")
    prompt_field: str = preset("prompt_field", "problem")
    id_field: str | None = preset("id_field", "unique_id")
    info_fields: tuple[str, ...] = preset("info_fields", ("subject", "level"))
    few_shot_field: str | None = preset("few_shot_field", "solution")
    system_prompt: str | None = preset("system_prompt", _BOXED)


class Math500(DatasetEnvironment):
    """MATH-500: 500 held-out competition problems; there is nothing to train on."""

    name = "math500"
    Config = Math500Config
    rewards = ("math",)
    splits: ClassVar[Sequence[str]] = ("test",)


class AimeConfig(DatasetConfig):
    hub: str | None = preset("hub", "HuggingFaceH4/aime_2024")
    prompt_field: str = preset("prompt_field", "problem")
    few_shot_field: str | None = preset("few_shot_field", "solution")
    system_prompt: str | None = preset("system_prompt", _BOXED)


class Aime(DatasetEnvironment):
    """AIME 2024. The hub calls its only split train."""

    name = "aime"
    Config = AimeConfig
    rewards = ("math",)
    splits: ClassVar[Sequence[str]] = ("train",)
