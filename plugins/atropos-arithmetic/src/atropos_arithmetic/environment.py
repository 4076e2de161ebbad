"""The `arithmetic` environment: endless small sums, drawn from a seed, with an exact answer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Literal

from pydantic import model_validator

from atropos_cli.sdk import (
    Config,
    Environment,
    Field,
    JsonDict,
    Message,
    Rollout,
    Task,
    TaskStream,
    assistant,
    reward,
    split_thinking,
    user,
)
from atropos_cli.sdk.prompts import packaged_prompt

Difficulty = Literal["easy", "medium", "hard", "expert"]
LEVELS: tuple[Difficulty, ...] = ("easy", "medium", "hard", "expert")
WORDS = ("apple", "river", "stone", "cloud", "green", "seven", "window", "paper", "music", "table", "silver", "winter")


def _number(rng: random.Random, level: int) -> int:
    return rng.randrange(10 ** (level - 1), 10**level) if level > 1 else rng.randrange(10)


SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}


def _operation(kind: str, a: int, b: int) -> tuple[str, int]:
    answer = {"add": a + b, "subtract": a - b, "multiply": a * b}[kind]
    return f"What is {a} {SIGNS[kind]} {b}?", answer


def _add(rng: random.Random, level: int) -> tuple[str, int]:
    return _operation("add", _number(rng, level), _number(rng, level))


def _subtract(rng: random.Random, level: int) -> tuple[str, int]:
    return _operation("subtract", _number(rng, level), _number(rng, level))


def _multiply(rng: random.Random, level: int) -> tuple[str, int]:
    return _operation("multiply", _number(rng, (level + 1) // 2), _number(rng, level // 2 + 1))


def _count(rng: random.Random, level: int) -> tuple[str, int]:
    count = rng.randint(2 * level, 6 * level)
    return f"How many words are in this list: {' '.join(rng.choices(WORDS, k=count))}?", count


def _compare(rng: random.Random, level: int) -> tuple[str, int]:
    numbers = rng.sample(range(10 ** (level - 1), 10 ** (level + 1)), level + 1)
    return f"Which is the largest of these numbers: {', '.join(map(str, numbers))}?", max(numbers)


def _binary(rng: random.Random, level: int) -> tuple[str, int]:
    number = rng.randrange(2 ** (2 * level - 1), 2 ** (2 * level + 1))
    return f"Write {number} in binary, without a prefix.", int(f"{number:b}")


KINDS: dict[str, Callable[[random.Random, int], tuple[str, int]]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "count": _count,
    "compare": _compare,
    "binary": _binary,
}


class ArithmeticConfig(Config):
    """Every field is a flag of `atropos gen arithmetic`, a key in a file and a variable ATROPOS_*."""

    kind: Literal["mixed", "add", "subtract", "multiply", "count", "compare", "binary"] = Field(
        default="mixed", description="What is asked."
    )
    difficulty: Literal["mixed", "easy", "medium", "hard", "expert"] = Field(
        default="easy", description="How large the numbers are."
    )
    max_number: int | None = Field(
        default=None, ge=1, description="Numbers from 0 to this one, whatever the difficulty says."
    )
    prompt_style: Literal["chat", "plain", "equation"] = Field(
        default="chat",
        description="chat: instructions and turns; plain: one text to continue, for base models; equation: 3+4=",
    )
    few_shot: int = Field(default=0, ge=0, le=16, description="Solved examples before the problem.")
    data_seed: int = Field(default=0, description="Another seed gives other problems.")

    @model_validator(mode="after")
    def _numbers_to_calculate_with(self) -> ArithmeticConfig:
        if self.kind not in (*SIGNS, "mixed"):
            if self.prompt_style == "equation":
                raise ValueError(f"prompt_style equation has no form for kind {self.kind}: use {', '.join(SIGNS)}")
            if self.max_number is not None:
                raise ValueError(f"max_number does not apply to kind {self.kind}: use {', '.join(SIGNS)}")
        return self

    @property
    def kinds(self) -> list[str]:
        """What `mixed` is drawn from."""
        return list(KINDS if self.prompt_style != "equation" and self.max_number is None else SIGNS)


_NUMBER = re.compile(r"(?<![\w.)])-?(?:\d{1,3}(?:,\d{3}){1,9}|\d{1,40})(?:\.0+(?!\d))?(?![\d.]*\d)(?!\w)")
_LABEL = re.compile(r"\banswer\W*:|\banswer is\b", re.IGNORECASE)


def extract(text: str) -> int | None:
    """The number a reply gives as its answer; None when there is none.

    Thoughts do not count: only what follows the last </think>, and nothing when a <think> is left
    open. Nor does what follows a line "Question:", which a base model goes on to invent. Then: the
    last number in the line of the last "Answer:" (or in the next line, when nothing follows it),
    or without that the last number of all. 1,234 and 1234.0 and -5 are numbers; 12.5 and 3rd are not.
    """
    _, answer = split_thinking(text)
    if answer is None:
        return None
    text = re.split(r"(?m)^\s*Question:", answer, maxsplit=1)[0].replace("\N{MINUS SIGN}", "-").replace("0b", "")
    labels = list(_LABEL.finditer(text))
    if labels:
        lines = [line for line in text[labels[-1].end() :].splitlines() if line.strip(" *_$`")]
        text = lines[0] if lines else ""
    found = _NUMBER.findall(re.sub(r"[*$`_]|\\boxed|[{}]", " ", text))
    return int(found[-1].partition(".")[0].replace(",", "")) if found else None


@reward(name="arithmetic_exact", extract=lambda task, rollout: extract(rollout.text))
def exact(task: Task, rollout: Rollout) -> float:
    """1 for the right number, else 0."""
    return float(extract(rollout.text) == task.answer)


class ArithmeticEnvironment(Environment):
    """Single-turn tasks; the engine shows the prompt and takes one reply."""

    name = "arithmetic"
    Config = ArithmeticConfig
    rewards = (exact,)
    splits = ("train", "test")
    prompt = packaged_prompt(__file__)
    config: ArithmeticConfig

    def tasks(self, split: str) -> TaskStream:
        """Task i depends on the seed, the split and i, and on nothing else."""
        return TaskStream(lambda index: self._task(split, index))

    def _problem(self, key: str) -> tuple[str, str, str, int]:
        rng = random.Random(f"{self.config.data_seed}:{key}")
        kind, level = rng.choice(self.config.kinds), rng.randrange(len(LEVELS))
        kind = kind if self.config.kind == "mixed" else self.config.kind
        largest = self.config.max_number
        if largest is not None:
            return kind, f"to{largest}", *_operation(kind, rng.randint(0, largest), rng.randint(0, largest))
        level = level if self.config.difficulty == "mixed" else LEVELS.index(self.config.difficulty)
        return kind, LEVELS[level], *KINDS[kind](rng, level + 1)

    def _task(self, split: str, index: int) -> Task:
        kind, difficulty, question, answer = self._problem(f"{split}:{index}")
        shots = [self._problem(f"example:{number}")[2:] for number in range(self.config.few_shot)]
        prompt = {"plain": self._plain, "equation": self._equation, "chat": self._chat}[self.config.prompt_style](
            shots, question
        )
        info: JsonDict = {"task_name": kind, "kind": kind, "difficulty": difficulty}
        return Task(id=f"{kind}-{difficulty}-{split}-{index}", prompt=prompt, answer=answer, info=info)

    def _plain(self, shots: list[tuple[str, int]], question: str) -> tuple[Message, ...]:
        solved = "".join(f"Question: {asked}\nAnswer: {answer}\n\n" for asked, answer in shots)
        return (user(f"{solved}Question: {question}\nAnswer:"),)

    def _equation(self, shots: list[tuple[str, int]], question: str) -> tuple[Message, ...]:
        def form(asked: str) -> str:
            return asked.removeprefix("What is ").removesuffix("?").replace(" ", "") + "="

        solved = "".join(f"{form(asked)}{answer}\n" for asked, answer in shots)
        return (user(solved + form(question)),)

    def _chat(self, shots: list[tuple[str, int]], question: str) -> tuple[Message, ...]:
        solved = [m for asked, answer in shots for m in (user(asked), assistant(f"Answer: {answer}"))]
        return (*self.prompt.opening(solved), user(question))

    def validate(self, task: Task) -> bool:
        """Does the gold answer, written as asked, earn full marks?"""
        reply = assistant(f"Answer: {task.answer}")
        return bool(exact(task, Rollout(id="gold", task_id=task.id, messages=(*task.prompt, reply))) == 1.0)
