"""Problems are right, the same everywhere, and scored by the stated rule."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from atropos_arithmetic.environment import KINDS, LEVELS, ArithmeticConfig, ArithmeticEnvironment, exact, extract

from atropos_cli.sdk import Message, Rollout, Task, assistant


def environment(**options: Any) -> ArithmeticEnvironment:
    """An environment with these options."""
    return ArithmeticEnvironment(ArithmeticConfig(**options))


def solve(question: str) -> int:
    """The answer, worked out from the text of the question."""
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    if match := re.fullmatch(r"What is (\d+) ([+*-]) (\d+)\?", question):
        a, b = int(match[1]), int(match[3])
        return {"+": a + b, "-": a - b, "*": a * b}[match[2]]
    if question.startswith("How many words"):
        return len(question.partition(": ")[2].rstrip("?").split())
    if question.startswith("Which is the largest"):
        return sorted(numbers)[-1]
    return int(bin(numbers[0])[2:])


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("difficulty", LEVELS)
def test_answers_are_right_and_earn_full_marks(kind: str, difficulty: str) -> None:
    env = environment(kind=kind, difficulty=difficulty)
    tasks = env.tasks("train")
    for index in range(50):
        task = tasks[index]
        assert task.answer == solve(task.prompt[-1].text)
        assert env.validate(task)
        assert not env.validate(task.replace(answer=str(task.answer)))


def test_harder_numbers_are_larger() -> None:
    means = []
    for difficulty in LEVELS:
        tasks = environment(kind="add", difficulty=difficulty).tasks("train")
        means.append(sum(int(str(tasks[index].answer)) for index in range(50)))
    assert means == sorted(means)
    assert means[0] * 100 < means[-1]


def test_mixed_has_everything_and_ids_are_unique() -> None:
    tasks = environment(difficulty="mixed").tasks("train")
    first = [tasks[index] for index in range(300)]
    assert {task.info["kind"] for task in first} == set(KINDS)
    assert {task.info["difficulty"] for task in first} == set(LEVELS)
    assert len({task.id for task in first}) == 300
    assert tasks.length is None


def test_the_same_problems_in_any_process() -> None:
    program = (
        "from atropos_arithmetic.environment import ArithmeticEnvironment as E\n"
        "tasks = E(E.Config(difficulty='mixed', few_shot=2)).tasks('test')\n"
        "print(*(tasks[i].model_dump_json() for i in range(40)), sep='\\n')"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "7")
    }
    tasks = environment(difficulty="mixed", few_shot=2).tasks("test")
    assert outputs == {"".join(tasks[i].model_dump_json() + "\n" for i in range(40))}
    assert environment(data_seed=1, difficulty="mixed").tasks("test")[0] != tasks[0]


def test_prompts() -> None:
    chat = environment(few_shot=2).tasks("train")[0].prompt
    assert [message.role for message in chat] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "Answer: 12" in chat[0].text
    assert chat[2].text == f"Answer: {solve(chat[1].text)}"
    (plain,) = environment(few_shot=2, prompt_style="plain").tasks("train")[0].prompt
    blocks = plain.text.split("\n\n")
    assert len(blocks) == 3
    question, answer = blocks[0].split("\n")
    assert answer == f"Answer: {solve(question.removeprefix('Question: '))}"
    assert plain.text.endswith("\nAnswer:")
    (equation,) = environment(few_shot=2, prompt_style="equation", kind="add").tasks("train")[0].prompt
    assert re.fullmatch(r"(\d\+\d=\d+\n){2}\d\+\d=", equation.text)


def test_numbers_up_to_a_largest_one() -> None:
    tasks = environment(max_number=12, prompt_style="equation").tasks("train")
    seen: dict[str, set[int]] = {"+": set(), "-": set(), "*": set()}
    for index in range(500):
        match = re.fullmatch(r"(\d+)([+*-])(\d+)=", tasks[index].prompt[0].text)
        assert match is not None
        assert tasks[index].answer == solve(f"What is {match[1]} {match[2]} {match[3]}?")
        assert environment().validate(tasks[index])
        seen[match[2]] |= {int(match[1]), int(match[3])}
    assert all(numbers == set(range(13)) for numbers in seen.values())
    questions = environment(max_number=12, kind="multiply").tasks("train")
    assert {solve(questions[index].prompt[-1].text) == questions[index].answer for index in range(50)} == {True}


@pytest.mark.parametrize("options", [{"prompt_style": "equation"}, {"max_number": 20}])
@pytest.mark.parametrize("kind", ["count", "compare", "binary"])
def test_what_is_no_calculation_has_no_equation(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"kind {kind}: use add, subtract, multiply"):
        environment(kind=kind, **options)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Answer: 42", 42),
        ("answer : 42.", 42),
        ("**Answer:** 42", 42),
        ("Answer:\n\n42", 42),
        ("The answer is 42.", 42),
        ("Answer: 41\nWait.\nAnswer: 42", 42),
        ("Answer: 40 + 2 = 42", 42),
        ("Answer: 42 because I say so\nThat took 3 steps.", 42),
        ("Answer: $42$", 42),
        ("Answer: \\boxed{42}", 42),
        ("Answer: 1,234", 1234),
        ("Answer: -7", -7),
        ("Answer: \N{MINUS SIGN}7", -7),
        ("Answer: 42.0", 42),
        ("Answer: 0b101", 101),
        ("Answer: 00101", 101),
        ("It makes 17, so 42", 42),
        ("10-3=7", 7),
        (" 42\n\nQuestion: What is 1 + 1?\nAnswer: 2", 42),
        ("<think>Answer: 41</think>Answer: 42", 42),
        ("thought</think>42", 42),
        ("<think>Answer: 42", None),
        ("</think><think>42", None),
        ("", None),
        ("Answer: forty-two", None),
        ("12 or so.\nAnswer: unknown", None),
        ("Answer: 42.5", None),
        ("the 3rd one", None),
        ("Answer: " + "9" * 10_000, None),
        ("Of 12,45,78 it is 78", 78),
        ("Answer:", None),
    ],
)
def test_the_number_in_a_reply(text: str, number: int | None) -> None:
    assert extract(text) == number
    assert exact.extract is not None
    reply = Rollout(id="r", task_id="t", messages=(assistant(text),))
    assert exact.extract(Task(id="t", answer=5), reply) == number


@pytest.mark.parametrize(
    ("text", "value"), [("Answer: 5", 1.0), ("Answer: 6", 0.0), ("<think>5", 0.0), ("no idea", 0.0)]
)
def test_the_reward(text: str, value: float) -> None:
    task = Task(id="t", answer=5)
    assert exact(task, Rollout(id="r", task_id="t", messages=(assistant(text),))) == value


def test_reasoning_apart_from_the_content_does_not_count() -> None:
    message = Message(role="assistant", content="hm", reasoning="Answer: 5")
    assert exact(Task(id="t", answer=5), Rollout(id="r", task_id="t", messages=(message,))) == 0.0
