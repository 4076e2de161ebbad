"""Tasks of inspect_ai for the tests: solvers, tools, limits and scorers of every kind, and samples that go wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Literal

from inspect_ai import Epochs, Task, task
from inspect_ai._util.exception import TerminateSampleError
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Score, Target, accuracy, exact, includes, mean, model_graded_qa, scorer
from inspect_ai.solver import (
    Generate,
    TaskState,
    generate,
    multiple_choice,
    prompt_template,
    self_critique,
    solver,
    system_message,
    use_tools,
)
from inspect_ai.tool import tool


@tool
def double():
    async def execute(number: int) -> int:
        """Double a number.

        Args:
            number: The number.
        """
        return 2 * number

    return execute


def first_time(once: str | None) -> bool:
    """Always without a file; else where the file was not there yet."""
    if once is None:
        return True
    seen = Path(once).exists()
    Path(once).touch()
    return not seen


@solver
def going_wrong(once: str | None):
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        way = state.metadata["way"]
        if way == "raise":
            raise ValueError("this sample raises")
        if way == "exit":
            sys.exit(3)
        if way == "cancel":
            raise asyncio.CancelledError
        if way == "stop":
            state = await generate(state)
            raise TerminateSampleError("enough")
        if way in ("kill", "hang") and first_time(once):
            print("not data")
            if way == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            await asyncio.sleep(600)
        if way == "talk":
            while True:
                state = await generate(state)
                state.messages.append(state.messages[0])
        return await generate(state)

    return solve


@scorer(metrics=[accuracy()])
def grades():
    async def score(state: TaskState, target: Target) -> Score | None:
        text = state.output.completion
        return None if text == "none" else Score(value={"yes": "C", "half": "P"}.get(text, "I"), answer=text)

    return score


@scorer(metrics={"*": [mean()]})
def parts():
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value={"length": len(state.output.completion), "right": state.output.completion == "yes"})

    return score


@task
def quiz(
    n: int = 3, ways: str = "plain", limit: int | None = None, once: str | None = None, cleaned: str | None = None
) -> Task:
    """Questions with a yes."""
    known = ways.split(",")
    samples = [
        Sample(id=f"q{i}", input=f"Is it {i}?", target="yes", metadata={"way": known[i % len(known)]}) for i in range(n)
    ]
    return Task(
        dataset=MemoryDataset(samples),
        solver=[system_message("Say yes or no."), going_wrong(once)],
        scorer=[grades(), parts()],
        message_limit=limit,
        epochs=Epochs(2, "mean"),
        cleanup=None if cleaned is None else noting(cleaned),
    )


def noting(cleaned: str):
    async def cleanup(state: TaskState) -> None:
        with Path(cleaned).open("a") as file:  # noqa: ASYNC230 - a line
            file.write(f"{state.sample_id}\n")
        raise RuntimeError("the cleanup raises")

    return cleanup


@scorer(metrics=[accuracy()])
def label():
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value="long" if len(state.output.completion) > 3 else "0.25")

    return score


@task
def labelled() -> Task:
    """A scorer of texts beside one of grades."""
    samples = [Sample(input="Say yes.", target="yes")]
    return Task(dataset=samples, solver=generate(), scorer=[includes(), label()])


@task
def said(text: str, scored_by: str = "exact") -> Task:
    """Needs a text, and is scored as it is told."""
    by = exact() if scored_by == "exact" else includes()
    return Task(dataset=[Sample(input=text, target="yes")], solver=generate(), scorer=by)


@task
def varied(scored_by: str = "exact", missing: str | None = None) -> Task:
    """Its arguments decide on its scorers; with `missing` it is made only while there is such a file."""
    if missing is not None and not Path(missing).exists():
        raise FileNotFoundError(missing)
    by = {"exact": [exact()], "both": [includes(), label()]}[scored_by]
    return Task(dataset=[Sample(input="Say yes.", target="yes")], solver=generate(), scorer=by)


@task
def tools() -> Task:
    """A number that a tool doubles."""
    samples = [Sample(input="Double 21.", target="42")]
    return Task(dataset=samples, solver=[use_tools(double()), generate()], scorer=includes())


@task
def judged(kind: Literal["critique", "template", "own judge"] = "template") -> Task:
    """A model judges the answer."""
    samples = [Sample(input="Say something true.", target="anything")]
    solvers = [prompt_template("Please: {prompt}"), generate()]
    if kind == "critique":
        solvers.append(self_critique())
    roles = {"grader": "mockllm/model"} if kind == "own judge" else None
    return Task(dataset=samples, solver=solvers, scorer=model_graded_qa(), model_roles=roles)


@task
def choices() -> Task:
    """One of three."""
    samples = [Sample(input="Which is two?", choices=["1", "2", "3"], target="B")]
    return Task(dataset=samples, solver=multiple_choice(), scorer=includes())


@task
def boxed() -> Task:
    """Needs what is not here."""
    return Task(dataset=[Sample(input="x", target="y")], solver=generate(), scorer=includes(), sandbox="docker")
