"""The environments `mbpp` and `humaneval`: published sets of small Python functions with tests."""

from __future__ import annotations

import re
from typing import Literal

from atropos_cli.sdk import Field, JsonDict, Message, Task, assistant, user
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_code.rows import Row, hub_rows, imports_needed, names_needed, text_of, texts_of
from atropos_code.tested import TestedConfig, TestedEnvironment, missing, sandbox_info

MBPP_HUB = "google-research-datasets/mbpp"
HUMANEVAL_HUB = "openai/openai_humaneval"
EXAMPLES = (2, 3, 4)
"""The three tasks that the authors of MBPP use as examples, by id."""


class MbppConfig(TestedConfig):
    """Options of `mbpp`."""

    variant: Literal["full", "sanitized"] = Field(
        default="full", description="Which set to load from the hub; a local file says itself which one it is."
    )
    shown_tests: int = Field(
        default=3, ge=0, description="How many of the tests the prompt shows; with 0 it names the function only."
    )
    few_shot: int = Field(default=0, ge=0, le=3, description="Solved examples before the task (tasks 2, 3 and 4).")


class MbppEnvironment(TestedEnvironment):
    """Splits are those of the authors, by task id: prompt 1-10, test 11-510, validation 511-600, train from 601."""

    name = "mbpp"
    Config = MbppConfig
    splits = ("train", "test", "validation", "prompt", "all")
    prompt = packaged_prompt(__file__, "functions.toml")
    config: MbppConfig

    def from_hub(self) -> list[Row]:
        return hub_rows(MBPP_HUB, self.config.variant)

    def task(self, row: Row, place: int, split: str) -> Task | None:
        number = row.get("task_id", place)
        if split not in ("all", _split(number)):
            return None
        info = self._info(row, place)
        question = self._question(row, info)
        shots = [] if number in EXAMPLES else self._shots()
        prompt = _plain(shots, question) if self.config.prompt_style == "plain" else self._chat(shots, question)
        return Task(id=f"mbpp-{number}", prompt=prompt, answer=text_of(row, "code") or None, info=info)

    def _info(self, row: Row, place: int) -> JsonDict:
        if not text_of(row, "prompt", "text"):
            raise missing(self.name, place, "text")
        tests = texts_of(row, "test_list")
        if not tests:
            raise missing(self.name, place, "test_list")
        setup, imports = text_of(row, "test_setup_code"), texts_of(row, "test_imports")
        imports += [line for line in imports_needed([setup, *tests], text_of(row, "code")) if line not in imports]
        names = names_needed([setup, *tests], text_of(row, "code"), [setup, *imports])
        if not names:
            raise missing(self.name, place, "test_list with a call of a function")
        return {
            "task_name": self.name,
            "tests": list(tests),
            "names": list(names),
            "imports": list(imports),
            "setup": setup,
            "layout": self.config.prompt_style,
            "sandbox": sandbox_info(self.config),
        }

    def _question(self, row: Row, info: JsonDict) -> str:
        tests, names = texts_of(row, "test_list"), info["names"]
        listed = ", ".join(f"`{name}`" for name in names) if isinstance(names, list) else ""
        text = f"{text_of(row, 'prompt', 'text').strip()}\nName in your code: {listed}."
        shown = tests[: self.config.shown_tests]
        if not shown:
            return text
        before = [text_of(row, "test_setup_code")] if info["setup"] else []
        return "\n".join([text, "", "Your code should pass these tests:", "", *before, *shown])

    def _chat(self, shots: list[tuple[str, str]], question: str) -> tuple[Message, ...]:
        solved = [m for asked, code in shots for m in (user(asked), assistant(f"```python\n{code.strip()}\n```"))]
        return (*self.prompt.opening(solved), user(question))

    def _shots(self) -> list[tuple[str, str]]:
        if not self.config.few_shot:
            return []
        known = {row.get("task_id"): (place, row) for place, row in enumerate(self.rows())}
        chosen = [known[number] for number in EXAMPLES[: self.config.few_shot] if number in known]
        return [(self._question(row, self._info(row, place)), text_of(row, "code")) for place, row in chosen]


def _split(number: object) -> str:
    if not isinstance(number, int):
        return "train"
    return "prompt" if number <= 10 else "test" if number <= 510 else "validation" if number <= 600 else "train"


def _plain(shots: list[tuple[str, str]], question: str) -> tuple[Message, ...]:
    role = "You are an expert Python programmer, and here is your task:"
    solved = "".join(f"{role} {asked}\n[BEGIN]\n{code.strip()}\n[DONE]\n\n" for asked, code in shots)
    return (user(f"{solved}{role} {question}\n[BEGIN]\n"),)


class HumanEvalEnvironment(TestedEnvironment):
    """The 164 tasks, all in split "test". A reply may be the whole function or, in a block, its body."""

    name = "humaneval"
    splits = ("test",)
    prompt = packaged_prompt(__file__, "functions.toml")

    def from_hub(self) -> list[Row]:
        return hub_rows(HUMANEVAL_HUB, None)

    def task(self, row: Row, place: int, split: str) -> Task | None:
        stem, entry, test = text_of(row, "prompt"), text_of(row, "entry_point"), text_of(row, "test")
        for key, value in (("prompt", stem), ("entry_point", entry), ("test", test)):
            if not value:
                raise missing(self.name, place, key)
        begin = re.search(rf"^(?:async )?def {re.escape(entry)}\b", stem, re.MULTILINE)
        prefix = stem[: begin.start()] if begin else ""
        info: JsonDict = {
            "task_name": self.name,
            "tests": [f"check({entry})"],
            "names": [entry],
            "support": stem,
            "setup": test,
            "prefix": prefix,
            "stem": stem,
            "layout": self.config.prompt_style,
            "sandbox": sandbox_info(self.config),
        }
        if self.config.prompt_style == "plain":
            prompt: tuple[Message, ...] = (user(f"# Complete the function.\n\n[BEGIN]\n{stem}"),)
        else:
            question = f"Complete this function. Repeat it as a whole.\n\n```python\n{stem.rstrip()}\n```"
            prompt = (*self.prompt.opening(), user(question))
        gold = stem + text_of(row, "canonical_solution") if text_of(row, "canonical_solution") else None
        return Task(id=str(row.get("task_id", f"humaneval-{place}")), prompt=prompt, answer=gold, info=info)
