"""Rows of problems for trainers that sample the answers themselves: verl's parquet, and TRL's GRPO.

verl             {data_source, prompt, ability, reward_model: {style, ground_truth}, extra_info}
prompt-answer    {prompt, answer, ...}                      the other columns reach TRL's reward functions

    converter = TaskConverter("verl", split="train")
    converter.of_task(task, environment="arithmetic")      of an environment
    converter.of_record(record)                            of stored rollouts: each task once

Every problem that does not become a row is counted under one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.datasets.convert.samples import clean
from atropos_cli.datasets.convert.spec import TaskForm
from atropos_cli.datasets.convert.turns import BadMessage, plain_text
from atropos_cli.domain.task import Task, kind_of_info
from atropos_cli.io.jsonvalue import dump
from atropos_cli.io.records import Message, Record, Row


@dataclass(frozen=True, slots=True)
class Problem:
    """What a row is made of. mean_score: of its rollouts, where there are scores: how hard it is."""

    id: str
    prompt: Sequence[Message]
    answer: Any
    info: Row
    source: str
    kind: str
    tools: list[Row] | None = None
    mean_score: float | None = None
    rollouts: int = 0


@dataclass(slots=True)
class TaskReport:
    """left_out: by reason. first: an example of a reason."""

    seen: int = 0
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"problems": self.seen, "rows": self.rows, "left_out": dict(self.left_out.most_common())}


class TaskConverter:
    """source: the value of verl's data_source, which picks the reward there; by default the environment's name."""

    def __init__(self, form: TaskForm, *, split: str = "train", source: str | None = None) -> None:
        self.form = form
        self.report = TaskReport()
        self._split = split
        self._source = source
        self._known: set[str] = set()
        self._make: dict[str, Callable[[Problem], Row]] = {"verl": self._verl, "prompt-answer": self._prompt_answer}

    def of_task(self, task: Task, environment: str) -> list[Row]:
        """The row of a task of an environment; none for one whose prompt is made by its episode."""
        prompt = [message.model_dump(mode="json", exclude_none=True, exclude_defaults=True) for message in task.prompt]
        kind = kind_of_info(task.info) or environment
        messages = [{**message, "role": sent.role} for message, sent in zip(prompt, task.prompt, strict=True)]
        return self._rows(
            Problem(f"{environment}/{task.id}", messages, task.answer, dict(task.info), environment, kind)
        )

    def of_record(self, record: Record) -> list[Row]:
        """The row of a group's task."""
        scores = [score for score in record.scores if score is not None]
        environment = record.env or "rollouts"
        return self._rows(
            Problem(
                record.task_key,
                record.prompt,
                record.answer,
                dict(record.info),
                environment,
                record.task_name or environment,
                record.tools,
                sum(scores) / len(scores) if scores else None,
                len(scores),
            )
        )

    def _rows(self, problem: Problem) -> list[Row]:
        self.report.seen += 1
        reason = self._why_not(problem)
        if reason is None:
            try:
                row = self._make[self.form](problem)
            except BadMessage as error:
                reason = error.reason
            else:
                self._known.add(problem.id)
                self.report.rows += 1
                return [row]
        self.report.left_out[reason] += 1
        self.report.first.setdefault(reason, problem.id)
        return []

    def _why_not(self, problem: Problem) -> str | None:
        if problem.id in self._known:
            return "same_task"
        if not problem.prompt:
            return "no_prompt"
        if problem.prompt[-1]["role"] == "assistant":
            return "prompt_ends_with_assistant"
        return None

    def _verl(self, problem: Problem) -> Row:
        """`info` is JSON text: keys that differ from row to row would not fit one column of objects."""
        extra: Row = {"split": self._split, "index": self.report.rows, "task": problem.id}
        extra["info"] = dump(problem.info).decode()
        extra["mean_score"], extra["rollouts"] = problem.mean_score, problem.rollouts
        return {
            "data_source": self._source or problem.source,
            "prompt": [{"role": m["role"], "content": _text(m)} for m in problem.prompt],
            "ability": problem.kind,
            "reward_model": {"style": "rule", "ground_truth": _answer(problem.answer)},
            "extra_info": extra,
            "task": problem.id,
        }

    def _prompt_answer(self, problem: Problem) -> Row:
        row: Row = {"prompt": [clean(message, arguments_as_text=True) for message in problem.prompt]}
        row |= {"answer": _answer(problem.answer), "environment": problem.source, "task": problem.id}
        row |= {"task_name": problem.kind, "info": dump(problem.info).decode()}
        row |= {"mean_score": problem.mean_score, "rollouts": problem.rollouts}
        if problem.tools:
            row["tools"] = dump(problem.tools).decode()
        return row


def _text(message: Message) -> str:
    """Raises BadMessage for anything but text."""
    if message.get("tool_calls"):
        raise BadMessage("tool_calls_in_prompt", "verl's prompts are texts")
    return plain_text(message)


def _answer(value: Any) -> str:
    """One type for the column, whatever the answers are: text as it is, all else as JSON."""
    return value if isinstance(value, str) else "" if value is None else dump(value).decode()
