"""The environment `tools-demo`: three kinds of tasks that need tools, with answers that are checked."""

from __future__ import annotations

import re
from typing import Any, Literal

from atropos_cli.sdk import (
    Field,
    JsonDict,
    Rollout,
    Task,
    TaskStream,
    assistant,
    reward,
    split_thinking,
    user,
)
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_cli.sdk.tools import ToolConfig, ToolEnvironment, ToolEpisode
from atropos_tools.desk import Desk, files_of
from atropos_tools.tasks import KINDS, SUMMARY, problem_of

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.0+)?(?![\d.]*\d)")


class ToolsDemoConfig(ToolConfig):
    kind: Literal["mixed", "calculator", "database", "files"] = Field(default="mixed", description="What is asked.")
    data_seed: int = Field(default=0, description="Another seed gives other tasks.")


@reward(name="tools_demo_solved", extract=lambda task, rollout: found_in(task, rollout))
def solved(task: Task, rollout: Rollout) -> float:
    """1 for the right number in the last reply, or in the file; else 0."""
    return float(found_in(task, rollout) == str(task.answer))


def found_in(task: Task, rollout: Rollout) -> str | None:
    """What the rollout gives as its result: the text of the file, or the last number of the last reply."""
    if task.info.get("kind") == "files":
        written = rollout.info.get("written")
        return written.strip() if isinstance(written, str) else None
    _, answer = split_thinking(rollout.text)
    numbers = _NUMBER.findall(answer or "")
    return numbers[-1].replace(",", "").partition(".")[0] if numbers else None


class DeskEpisode(ToolEpisode):
    """A conversation that also reports the file that the task asks for."""

    desk: Desk

    def result(self) -> JsonDict:
        """See Episode."""
        written = files_of(self.desk).get(SUMMARY)
        return super().result() | ({} if written is None else {"written": written})


class ToolsDemo(ToolEnvironment):
    """Tasks for a calculator, an SQLite database and files, with checked answers."""

    name = "tools-demo"
    Config = ToolsDemoConfig
    rewards = (solved,)
    splits = ("train", "test")
    prompt = packaged_prompt(__file__)
    config: ToolsDemoConfig

    def tasks(self, split: str) -> TaskStream:
        """Task i depends on the seed, the split and i, and on nothing else."""
        return TaskStream(lambda index: self._task(split, index))

    def toolbox(self, task: Task) -> Desk:
        """A desk of the episode's own."""
        problem = problem_of(str(task.info["kind"]), str(task.info["key"]))
        return Desk(problem.orders, problem.files)

    def episode(self, task: Task) -> DeskEpisode:
        """See ToolEnvironment."""

        def make() -> Any:
            episode.desk = self.toolbox(task)
            return episode.desk

        episode = DeskEpisode(task, self.config, make)
        return episode

    def validate(self, task: Task) -> bool:
        """Do the gold calls give the answer?"""
        problem = problem_of(str(task.info["kind"]), str(task.info["key"]))
        desk = self.toolbox(task)
        results = [getattr(desk, name)(**arguments) for name, arguments in problem.calls]
        info: JsonDict = {"written": files_of(desk).get(SUMMARY)}
        desk.close()
        last = results[-1]["rows"][0][0] if isinstance(results[-1], dict) else results[-1]
        gold = Rollout(id="gold", task_id=task.id, messages=(*task.prompt, assistant(str(last))), info=info)
        return bool(solved(task, gold) == 1.0)

    def _task(self, split: str, index: int) -> Task:
        kind = list(KINDS)[index % len(KINDS)] if self.config.kind == "mixed" else self.config.kind
        key = f"{self.config.data_seed}:{split}:{index}"
        problem = problem_of(kind, key)
        info: JsonDict = {"task_name": kind, "kind": kind, "key": key}
        prompt = (*self.prompt.opening(kind=kind), user(problem.question))
        return Task(id=f"{kind}-{split}-{index}", prompt=prompt, answer=problem.answer, info=info)
