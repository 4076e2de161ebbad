"""The suite `arithmetic_eval`: 200 fixed problems, very easy to very hard, the same for everybody.

They were drawn once from a fixed seed and are stored with a checksum, so that a change of the generator can
never change the suite. `python -m atropos_arithmetic.suite` draws them again, to standard output.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from importlib import resources

from atropos_arithmetic.environment import KINDS, ArithmeticConfig, ArithmeticEnvironment
from atropos_cli.sdk import Config, ConfigError, Field, Task

SEED = 20_260_101
PROBLEMS = 200
LEVELS = ("very-easy", "easy", "medium", "hard", "very-hard")
SHA256 = "1be4f5a45cf4619e65e0af35b5d6b233ae02f0bc6a181df1ebd6cf6f5b28faeb"


def draw() -> Iterator[dict[str, str | int]]:
    """The problems: all kinds and levels in turn, no question twice."""
    rng = random.Random(SEED)
    seen: set[str] = set()
    kinds = list(KINDS)
    while len(seen) < PROBLEMS:
        number = len(seen)
        level, kind = number % len(LEVELS), kinds[number // len(LEVELS) % len(kinds)]
        question, answer = KINDS[kind](rng, level + 1)
        if question not in seen:
            seen.add(question)
            yield {
                "id": f"{number:03d}",
                "kind": kind,
                "difficulty": LEVELS[level],
                "question": question,
                "answer": answer,
            }


class SuiteConfig(Config):
    """How the fixed problems are put."""

    prompt_style: str = Field(
        default="chat",
        pattern="^(chat|plain)$",
        description="chat: instructions and turns; plain: one text to continue, for base models.",
    )
    few_shot: int = Field(default=0, ge=0, le=16, description="Solved examples before the problem.")


class ArithmeticEval(ArithmeticEnvironment):
    """200 fixed problems from very easy to very hard, for comparing models and checkpoints."""

    name = "arithmetic_eval"
    Config = SuiteConfig  # type: ignore[assignment]
    splits = ("test",)  # type: ignore[assignment]

    def __init__(self, config: SuiteConfig) -> None:
        super().__init__(ArithmeticConfig.model_validate({**config.model_dump(), "difficulty": "easy"}))

    def tasks(self, split: str) -> Sequence[Task]:  # type: ignore[override]
        """All 200, in their order. Raises ConfigError when the stored file was changed."""
        data = resources.files("atropos_arithmetic").joinpath("arithmetic_eval.jsonl").read_bytes()
        if hashlib.sha256(data).hexdigest() != SHA256:
            raise ConfigError(
                "the stored problems of arithmetic_eval were changed: results would not be comparable",
                hint="pip install --force-reinstall atropos-arithmetic",
            )
        rows = [json.loads(line) for line in data.splitlines()]
        shots = [self._problem(f"example:{number}")[2:] for number in range(self.config.few_shot)]
        render = self._plain if self.config.prompt_style == "plain" else self._chat
        return [
            Task(
                id=f"arithmetic_eval-{row['id']}",
                prompt=render(shots, row["question"]),
                answer=row["answer"],
                info={"task_name": row["kind"], "kind": row["kind"], "difficulty": row["difficulty"]},
            )
            for row in rows
        ]


if __name__ == "__main__":
    for problem in draw():
        sys.stdout.write(json.dumps(problem) + "\n")
