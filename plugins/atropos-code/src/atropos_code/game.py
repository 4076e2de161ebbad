"""The environment `code-game`: a proposer writes a program, an opponent predicts what it prints.

One task makes a group of proposers (group_size programs for one request) and, for each program that
counts, a group of opponents that predict its output. The same model plays both, unless the role `opponent` has a model
of its own: then only the proposers are trained.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Literal

from atropos_cli.sdk import (
    Field,
    GroupContext,
    JsonDict,
    Message,
    Rollout,
    ScoredGroup,
    Task,
    TaskStream,
    Usage,
    stop_reason_of,
    system,
    user,
)
from atropos_cli.sdk.backends import Completion
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_code import judging, prediction
from atropos_code.extract import extract_code, extract_output
from atropos_code.freeform import request
from atropos_code.rewards import code_game
from atropos_code.tested import SandboxConfig, SandboxedEnvironment, sandbox_info

OPPONENT = "opponent"


class CodeGameConfig(SandboxConfig):
    """Options of `code-game`."""

    timeout_s: float = Field(default=5.0, gt=0, le=600, description="Wall-clock seconds for one program.")
    data_seed: int = Field(default=0, description="Another seed gives other requests.")
    predictions: int = Field(default=2, ge=1, le=64, description="Predictions asked for each program.")
    proposer_reward: Literal["zero_sum", "learnability"] = Field(
        default="zero_sum",
        description="zero_sum: 1 for each wrong prediction, -1 for a right one; learnability: 1 - share of right "
        "predictions when some are right and some wrong, else 0.",
    )
    output_chars: int = Field(
        default=2000, ge=1, description="A program that prints more than this is void: copying would be the task."
    )


class _Program:
    """One proposed program and what is known of it."""

    def __init__(self, number: int, completion: Completion) -> None:
        self.number = number
        self.completion = completion
        self.code = extract_code(completion.message.text)
        self.info: JsonDict = {"role": "proposer", "ran_ok": False, "deterministic": False, "output": ""}
        self.answers: list[Completion] = []

    @property
    def valid(self) -> bool:
        """Whether there is something to predict."""
        return bool(self.info["ran_ok"] and self.info["deterministic"] and str(self.info["output"]).strip())


class CodeGameEnvironment(SandboxedEnvironment):
    """Groups: turn 0 holds the proposers, each further turn the policy's own predictions of one program."""

    name = "code-game"
    Config = CodeGameConfig
    rewards = (code_game,)
    roles = (OPPONENT,)
    prompt = packaged_prompt(__file__, "code_game.toml")
    config: CodeGameConfig

    @classmethod
    def varied_groups(cls, config: CodeGameConfig, others: Collection[str]) -> str | None:
        """With a model of its own the opponent is not trained, and the programs are the only group."""
        return None if OPPONENT in others else "each valid program makes a group of predictions"

    def tasks(self, split: str) -> TaskStream:
        """Task i depends on the seed, the split and i, and on nothing else."""
        return TaskStream(lambda index: self._task(split, index))

    def _task(self, split: str, index: int) -> Task:
        topic = request(f"{self.config.data_seed}:game:{split}:{index}")
        prompt = (*self._told("proposer"), user(f"As a starting point: a program that {topic}. Change it as you like."))
        info: JsonDict = {
            "task_name": self.name,
            "sandbox": sandbox_info(self.config),
            "proposer_reward": self.config.proposer_reward,
        }
        return Task(id=f"game-{split}-{index}", prompt=prompt, info=info)

    def _told(self, role: str) -> tuple[Message, ...]:
        text = self.prompt.text(role)
        return (system(text),) if text else ()

    def _question(self, program: _Program) -> tuple[Message, ...]:
        asked = user(f"```python\n{program.code.rstrip()}\n```\n\nWhat does this program print?")
        return (*self._told("opponent"), asked)

    async def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """Programs, two runs of each, predictions, groups."""
        completions = await context.generate(task.prompt, n=context.group_size)
        programs = [_Program(number, completion) for number, completion in enumerate(completions)]
        await asyncio.gather(*(self._examine(task, program) for program in programs))
        counted = [program for program in programs if program.valid]
        answers = await asyncio.gather(*(self._predict(program, context) for program in counted))
        for program, given in zip(counted, answers, strict=True):
            program.answers = list(given)
            program.info["predictions"] = [extract_output(answer.message.text) for answer in given]
        proposers = [_rollout(task, context, program, task.prompt, program.completion) for program in programs]
        scored = await context.score(task, proposers)
        trained = [] if OPPONENT in context.opponents() else counted
        yield context.group(task, scored, episode_id=task.id, turn=0, last=not trained)
        for turn, program in enumerate(trained, 1):
            opponents = [
                _rollout(task, context, program, self._question(program), answer, opponent=place)
                for place, answer in enumerate(program.answers)
            ]
            scored = await context.score(task, opponents)
            yield context.group(task, scored, episode_id=task.id, turn=turn, last=program is trained[-1])

    async def _predict(self, program: _Program, context: GroupContext) -> Sequence[Completion]:
        question, count = self._question(program), self.config.predictions
        if OPPONENT in context.opponents():
            return await context.models[OPPONENT].generate(question, n=count)
        return await context.generate(question, n=count, sampling=context.sampling_of(OPPONENT))

    async def _examine(self, task: Task, program: _Program) -> None:
        if not program.code.strip():
            return
        first, second = await judging.run_twice(task, program.code)
        program.info["ran_ok"] = first.ran and second.ran and len(first.stdout) <= self.config.output_chars
        program.info["deterministic"] = prediction.deterministic(first, second)
        program.info["output"] = first.stdout[: self.config.output_chars]
        program.info["outcome"] = first.outcome


def _rollout(
    task: Task,
    context: GroupContext,
    program: _Program,
    prompt: Sequence[Message],
    completion: Completion,
    *,
    opponent: int | None = None,
) -> Rollout:
    info = dict(program.info)
    name = f"{context.group_id}/{program.number}"
    metrics = {"void_program": float(not program.valid)}
    if opponent is not None:
        name += f".{opponent}"
        given = extract_output(completion.message.text)
        info |= {"role": "opponent", "prediction": given}
        info.pop("predictions", None)
        metrics = {"prediction_given": float(given is not None)}
    return Rollout(
        id=name,
        task_id=task.id,
        role=str(info["role"]),
        messages=(*prompt, completion.message),
        info=info,
        metrics=metrics,
        usage=Usage(completion_tokens=completion.completion_tokens),
        stop_reason=stop_reason_of(completion.finish_reason),
    )
