"""Environments whose tasks are the rows of a data set.

    atropos gen dataset --path problems.jsonl --prompt-field question --answer-field answer
    atropos gen dataset --hub openai/gsm8k --config-name main --prompt-field question

All rows are read once before the first request, so that a bad one is refused then; a task is made when
it is asked for.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from string import ascii_uppercase
from typing import ClassVar

from atropos_cli.sdk import (
    ConfigError,
    DataError,
    Environment,
    JsonDict,
    Message,
    Reward,
    SingleTurn,
    Task,
    TaskStream,
    assistant,
    system,
    user,
)
from atropos_cli.sdk.data import is_remote
from atropos_datasets.choices import lettered
from atropos_datasets.config import DatasetConfig
from atropos_datasets.hub import fetch_hub, open_hub, open_saved
from atropos_datasets.mapping import Index, Mapping, Problem
from atropos_datasets.rows import Rows, open_file

THINKING = (
    "First think about the problem inside <think> and </think>. After the closing tag, give your answer; "
    "nothing inside the thinking counts as the answer."
)
CHOICE = "Choose the right option. End your reply with a line such as: The answer is (X)"
_PART = re.compile(r"(?P<name>[^\[\]]*)\[(?P<begin>-?\d+%?)?:(?P<end>-?\d+%?)?\]")


class DatasetEnvironment(Environment):
    """Tasks from a hub data set or a local file, by a field mapping."""

    name = "dataset"
    Config = DatasetConfig
    rewards: ClassVar[Sequence[Reward | str]] = ("answer",)
    splits: ClassVar[Sequence[str]] = ("train", "validation", "test")
    config: DatasetConfig

    def __init__(self, config: DatasetConfig) -> None:
        super().__init__(config)
        self._mapping = Mapping(config)
        self._kind = self.name if type(self).Config.model_fields["hub"].default else _data_name(config)
        self._streams: dict[str, TaskStream] = {}
        self._open: list[Rows] = []
        self._check_source()

    def _check_source(self) -> None:
        """What can be told without reading data; before a model is loaded."""
        config, default = self.config, type(self).Config.model_fields
        if config.path is None and config.hub is None:
            raise ConfigError(
                f"environment {self.name!r} has no data", hint="--path FILE for a local file, or --hub NAME"
            )
        if config.path is not None:
            for option, value in (("hub", config.hub), ("config_name", config.config_name)):
                if value != default[option].default:
                    raise ConfigError(
                        f"--path {config.path} and --{option.replace('_', '-')} {value} exclude each other",
                        hint="a local file has no config; leave one of them out",
                    )
        for path in (config.path, config.few_shot_path):
            if path is not None and not is_remote(path) and not Path(path).expanduser().exists():
                raise DataError(f"{path} does not exist", hint="give a file, or --hub NAME for a hub data set")

    async def close(self) -> None:
        """Close the files."""
        while self._open:
            self._open.pop().close()

    def prefetch(self) -> Iterator[str]:
        """All splits of the hub data set, into the library's cache."""
        if self.config.path is None and self.config.hub is not None:
            yield fetch_hub(self.config.hub, self.config.config_name)

    def tasks(self, split: str) -> TaskStream:
        """The rows of the split, checked, in the stored order or shuffled by the seed."""
        if split not in self._streams:
            self._streams[split] = self._stream(split)
        return self._streams[split]

    def _stream(self, split: str) -> TaskStream:
        name, rows, order = self._rows(self.config.data_split, split, self.config.path)
        index = Index(rows, self._mapping, name)
        if self.config.shuffle_seed is not None:
            Random(f"{self.config.shuffle_seed}").shuffle(order)
        shots = self._shots(split, rows, index)

        def make(position: int) -> Task:
            number = order[position]
            row = rows[number]
            task_id = index.task_id(number, row)
            mine = [problem for shot, problem in shots if shot != number][: self.config.few_shot]
            return self._task(task_id, self._mapping.problem(row, task_id), mine)

        return TaskStream(make, len(order))

    def _shots(self, split: str, rows: Rows, index: Index) -> list[tuple[int | None, Problem]]:
        """Enough examples for any task, each with its row number if a task may be that very row."""
        wanted = self.config.few_shot
        if not wanted:
            return []
        same = self.config.few_shot_path is None and self.config.few_shot_split is None
        if same:
            if len(rows) <= wanted:
                raise DataError(
                    f"{len(rows)} rows are too few for {wanted} examples and a problem",
                    hint=f"--few-shot {len(rows) - 1}, or --few-shot-path FILE",
                )
            numbers: Sequence[int] = range(wanted + 1)
        else:
            path = self.config.few_shot_path or self.config.path
            name, rows, numbers = self._rows(self.config.few_shot_split, split, path)
            index = Index(rows, self._mapping, f"example-{name}")
            numbers = numbers[:wanted]
            if len(numbers) < wanted:
                raise DataError(f"{len(numbers)} rows are too few for {wanted} examples")
        found: list[tuple[int | None, Problem]] = []
        for number in numbers:
            row = rows[number]
            found.append((number if same else None, self._mapping.problem(row, index.task_id(number, row))))
        return found

    def _rows(self, wanted: str | None, split: str, path: str | None) -> tuple[str, Rows, array[int]]:
        """(split, its rows, the numbers of those that are asked for)."""
        part = _PART.fullmatch(wanted) if wanted else None
        named = (part["name"] if part else wanted) or None
        name = named or split
        if path is None:
            assert self.config.hub is not None
            rows: Rows = open_hub(self.config.hub, self.config.config_name, name)
        elif not is_remote(path) and Path(path).expanduser().is_dir():
            rows = open_saved(path, name)
        elif named is not None:
            raise ConfigError(
                f"{path} is one file, it has no split {named!r}",
                hint="leave the split out, take a part with '[:100]', or name the examples' file: --few-shot-path",
            )
        else:
            rows = open_file(path)
        self._open.append(rows)
        count = len(rows)
        begin, end = (_bound(part["begin"], 0, count), _bound(part["end"], count, count)) if part else (0, count)
        if count and begin >= end:
            raise DataError(f"{wanted!r} takes none of the {count} rows", hint="--data-split '[:100]'")
        return name, rows, array("q", range(begin, end))

    def _task(self, task_id: str, problem: Problem, shots: Sequence[Problem]) -> Task:
        plain = self.config.prompt_style == "plain"
        prompt = self._plain(problem, shots) if plain else self._chat(problem, shots)
        subject = problem.info.get("subject")
        info: JsonDict = {"task_name": subject if isinstance(subject, str) and subject else self._kind, **problem.info}
        return Task(id=task_id, prompt=prompt, answer=problem.answer, info=info)

    def _instruction(self, problem: Problem) -> str:
        """The text of the system message: the options', and the row's own."""
        own = self.config.system_prompt
        if own is None and self.config.choices_field:
            own = CHOICE
        rows = [message.text for message in problem.before if message.role == "system"]
        return "\n\n".join(part for part in (own, *rows, THINKING if self.config.thinking else None) if part)

    def _question(self, problem: Problem) -> str:
        text = str(problem.question)
        if problem.options:
            text = f"{text}\n\n{lettered(list(problem.options))}"
        template = self.config.prompt_template
        return template.replace("{prompt}", text) if template else text

    def _chat(self, problem: Problem, shots: Sequence[Problem]) -> tuple[Message, ...]:
        instruction = self._instruction(problem)
        messages: list[Message] = [system(instruction)] if instruction else []
        for shot in shots:
            messages += [*self._asked(shot), assistant(shot.shot)]
        return (*messages, *self._asked(problem))

    def _asked(self, problem: Problem) -> tuple[Message, ...]:
        if not isinstance(problem.question, str):
            return problem.question
        earlier = (message for message in problem.before if message.role != "system")
        return (*earlier, user(self._question(problem)))

    def _plain(self, problem: Problem, shots: Sequence[Problem]) -> tuple[Message, ...]:
        instruction = self._instruction(problem)
        solved = [f"Question: {self._question(shot)}\nAnswer: {shot.shot}" for shot in shots]
        asked = f"Question: {self._question(problem)}\nAnswer:"
        return (user("\n\n".join([*([instruction] if instruction else []), *solved, asked])),)

    def episode(self, task: Task) -> SingleTurn:
        """One reply; for multiple choice the summary also shows how often each letter is the gold one."""
        episode = ChoiceEpisode(task) if self.config.choices_field else SingleTurn(task)
        episode.prefill = self.config.prefill
        return episode

    def validate(self, task: Task) -> bool | None:
        """False for a gold answer that no reply can match. None else: the rewards live elsewhere, and decide."""
        if self.config.answer_field and task.answer in (None, "", [], {}):
            return False
        if self.config.choices_field:
            options = task.info.get("choices")
            known = ascii_uppercase[: len(options)] if isinstance(options, list) else ""
            return None if isinstance(task.answer, str) and task.answer in known else False
        return None


class ChoiceEpisode(SingleTurn):
    """One reply to a lettered problem."""

    def metrics(self) -> dict[str, float]:
        """1 for the gold letter, 0 for the others: the means are the share of each."""
        options = self.task.info.get("choices")
        count = len(options) if isinstance(options, list) else 0
        return {f"gold_{letter}": float(letter == self.task.answer) for letter in ascii_uppercase[:count]}

    def result(self) -> JsonDict:
        return {"gold": self.task.answer}


def _data_name(config: DatasetConfig) -> str:
    """What the tasks of a data set are called together: the file, or the data set without its owner."""
    if config.path is None:
        return str(config.hub).rpartition("/")[2]
    name = Path(config.path).name
    return re.sub(r"(?:\.(?:jsonl?|csv|parquet|gz|zst))+$", "", name) or name


def _bound(text: str | None, default: int, count: int) -> int:
    """A place among `count` rows, from "10", "-10" or "10%"."""
    if text is None:
        return default
    value = round(int(text[:-1]) * count / 100) if text.endswith("%") else int(text)
    return min(max(value + count if value < 0 else value, 0), count)
