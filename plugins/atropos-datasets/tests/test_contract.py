"""The contracts that every environment keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import EnvironmentContract

ROWS: list[dict[str, Any]] = [{"prompt": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(6)]
CHOICES: list[dict[str, Any]] = [
    {"question": f"Which is {n}?", "choices": [str(n), str(n + 1), str(n + 2)], "answer": 0} for n in range(6)
]
MATH: list[dict[str, Any]] = [
    {
        "problem": f"Half of {n}?",
        "solution": f"\\boxed{{\\frac{{{n}}}{{2}}}}",
        "answer": f"\\frac{{{n}}}{{2}}",
        "unique_id": f"half/{n}",
        "subject": "Algebra",
        "level": 1,
    }
    for n in (1, 3, 5, 7)
]
GSM8K: list[dict[str, Any]] = [
    {"question": f"{n} apples and one more?", "answer": f"{n} + 1 = {n + 1}\n#### {n + 1}"} for n in range(5)
]


class FileContract(EnvironmentContract):
    """An environment over a small file of its own."""

    rows = ROWS
    options: dict[str, Any] = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "data.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))
        monkeypatch.setattr(type(self), "config", {"path": str(path), **self.options})


class TestDataset(FileContract):
    environment = "dataset"
    options = {"few_shot": 2, "prompt_style": "plain", "shuffle_seed": 3}  # noqa: RUF012
    replies = ("The answer is 4.", "5")


class TestMultipleChoice(FileContract):
    environment = "multiple-choice"
    rows = CHOICES
    replies = ("The answer is (B).",)


class TestGsm8k(FileContract):
    environment = "gsm8k"
    rows = GSM8K
    replies = ("#### 4",)


class TestMath500(FileContract):
    environment = "math500"
    rows = MATH
    options = {"thinking": True}  # noqa: RUF012
    replies = ("\\boxed{0.5}",)


class TestAime(FileContract):
    environment = "aime"
    rows = MATH
    options = {"few_shot": 1}  # noqa: RUF012
    replies = ("\\boxed{33}",)


del FileContract, EnvironmentContract
