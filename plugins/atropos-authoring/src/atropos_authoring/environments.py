"""What every environment must do, as tests. Subclass EnvironmentContract and name the environment."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from atropos_authoring.beginnings import begin, first_messages
from atropos_authoring.helpers import STRANGE_REPLIES, ReplyFunction, run_environment
from atropos_cli.sdk import Environment, Episode, Game, Message, ScoredGroup, Task, TaskStream
from atropos_cli.sdk.authoring import TASK_NAME, check_component, get_registry

T = TypeVar("T")


class EnvironmentContract:
    """Set `environment` (a class, or the name of an installed one); the rest when the defaults do not fit.

    config: its options. split: the split to test, default its first. replies: what a model would say,
    in turn; override `player` where it must look at the messages. limit: how many tasks to look at.
    """

    environment: ClassVar[type[Environment] | str]
    config: ClassVar[Mapping[str, Any]] = {}
    split: ClassVar[str | None] = None
    replies: ClassVar[Sequence[str]] = ("42",)
    limit: ClassVar[int] = 3
    group_size: ClassVar[int] = 2

    def player(self) -> Sequence[str] | ReplyFunction:
        """Who plays: replies to give in turn, or a function from the messages to a reply."""
        return self.replies

    # -- the class and its options

    def test_the_class_is_complete(self) -> None:
        cls = self._class()
        check_component("environment", cls.name, cls, origin="the tests")
        assert cls.splits, "splits is empty"
        assert issubclass(cls.Config, BaseModel), "Config is not a pydantic model"

    def test_every_option_is_described(self) -> None:
        bare = [name for name, field in self._class().Config.model_fields.items() if not field.description]
        assert not bare, f"the description is the help text; missing for: {', '.join(bare)}"

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(ValidationError):
            self._class().Config(**{**self.config, "no_such_option": 1})

    def test_options_survive_json(self) -> None:
        """The plan stores the options as JSON, and a cluster reads them from it."""
        config = self._config()
        secret = {name for name, value in config if isinstance(value, SecretStr)}
        data = config.model_dump(mode="json", exclude=secret)
        again = type(config).model_validate(data)
        assert again.model_dump(mode="json", exclude=secret) == data

    # -- tasks

    def test_tasks_are_tasks_with_ids_of_their_own(self) -> None:
        tasks = self._tasks()
        assert tasks, f"split {self._split()!r} has no tasks"
        for task in tasks:
            assert isinstance(task, Task), f"tasks() gave {type(task).__name__}"
            assert task.id, "a task has an empty id"
            assert Task.model_validate_json(task.model_dump_json()) == task, f"task {task.id} does not survive JSON"
        ids = [task.id for task in tasks]
        assert len(set(ids)) == len(ids), f"task ids occur twice: {ids}"

    def test_tasks_name_their_kind(self) -> None:
        """Reports, `filter --balance task_name` and retention are kept apart by it; one name for all will do."""
        names = {task.id: task.info.get(TASK_NAME) for task in self._tasks()}
        bare = [task_id for task_id, name in names.items() if not (isinstance(name, str) and name.strip())]
        if len(bare) == len(names) and not any(names.values()):
            pytest.skip(f'info["{TASK_NAME}"] names no kind of task')
        assert not bare, f'info["{TASK_NAME}"] is no name of a kind of task for: {", ".join(bare)}'

    def test_tasks_are_the_same_every_time(self) -> None:
        """A resumed run counts on it: the tasks that are done are skipped by their place."""
        assert self._tasks() == self._tasks()

    def test_tasks_by_index_are_those_in_order(self) -> None:
        async def check(environment: Environment) -> None:
            tasks = environment.tasks(self._split())
            if not isinstance(tasks, Sequence):
                pytest.skip("the tasks have no index")
            in_order = list(itertools.islice(iter(tasks), self.limit))
            for index in reversed(range(len(in_order))):
                assert tasks[index] == in_order[index]
            if not (isinstance(tasks, TaskStream) and tasks.length is None):
                assert len(tasks) >= len(in_order)

        self._opened(check)

    def test_gold_answers_earn_full_marks(self) -> None:
        async def check(environment: Environment) -> None:
            results = {}
            for task in self._first(environment):
                results[task.id] = await _value(environment.validate(task))
            wrong = [task_id for task_id, result in results.items() if result is False]
            assert not wrong, f"validate() is False for: {', '.join(wrong)}"
            if all(result is None for result in results.values()):
                pytest.skip("validate() checks nothing")

        self._opened(check)

    # -- episodes

    def test_an_episode_begins_with_messages_for_the_model(self) -> None:
        async def check(environment: Environment) -> None:
            for task in self._first(environment):
                for message in await _reset(begin(environment, task)):
                    assert isinstance(message, Message), f"reset() gave {type(message).__name__}"

        self._opened(check)

    def test_episodes_of_one_task_begin_alike_and_do_not_share_state(self) -> None:
        """Groups compare rollouts of the same problem; they run at the same time."""

        async def check(environment: Environment) -> None:
            for task in self._first(environment):
                episodes = [begin(environment, task) for _ in range(2)]
                assert episodes[0] is not episodes[1], "episode() gave the same object twice"
                first, second = [await first_messages(episode) for episode in episodes]
                for episode in episodes:
                    await _value(episode.close())
                assert first == second

        self._opened(check)

    def test_an_episode_can_be_closed_before_it_began(self) -> None:
        async def check(environment: Environment) -> None:
            await _value(begin(environment, self._first(environment)[0]).close())

        self._opened(check)

    # -- whole runs, in the real engine

    def test_a_run_writes_whole_groups(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        groups = self._run(tmp_path / "run", self.player())
        printed = capfd.readouterr().out
        assert not printed, f"stdout belongs to the data; the environment printed {printed[:200]!r}"
        by_task: dict[str, list[ScoredGroup]] = {}
        for group in groups:
            by_task.setdefault(group.task.id, []).append(group)
        for task_id, parts in by_task.items():
            assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True], (
                f"of the groups of task {task_id}, the final one and no other must have last=True"
            )
        for group in groups:
            assert group.rollouts, f"group {group.group_id} is empty"
            for rollout in group.rollouts:
                assert rollout.failure is None, f"a rollout failed: {rollout.failure}"
                assert rollout.task_id == group.task.id
                assert rollout.completion is not None, "a rollout holds no reply"
                numbers = {**rollout.rewards, **rollout.metrics}
                assert all(math.isfinite(value) for value in numbers.values()), f"not finite: {numbers}"
        ids = [group.group_id for group in groups]
        assert len(set(ids)) == len(ids), "group ids occur twice"

    def test_strange_replies_are_answers_not_errors(self, tmp_path: Path) -> None:
        """A model may say anything. That is worth little, perhaps, but it is no failure of the environment."""
        fresh = itertools.cycle(STRANGE_REPLIES)

        def stubborn(messages: Sequence[Message]) -> str:
            """Another reply for each conversation, the same one in all its turns."""
            said = [message.text for message in messages if message.role == "assistant"]
            known = [text for text in said if text in STRANGE_REPLIES]
            return known[0] if known else next(fresh)

        for group in self._run(tmp_path / "run", stubborn, limit=1, group_size=len(STRANGE_REPLIES)):
            for rollout in group.rollouts:
                said = [message.text for message in rollout.messages if message.text in STRANGE_REPLIES]
                assert rollout.failure is None, f"reply {''.join(said)[:40]!r}: {rollout.failure}"

    # -- how the tests reach the environment

    def _class(self) -> type[Environment]:
        if isinstance(self.environment, str):
            cls: type[Environment] = get_registry().find("environment", self.environment).load()
            return cls
        return self.environment

    def _split(self) -> str:
        return self.split or self._class().splits[0]

    def _config(self) -> BaseModel:
        return self._class().Config(**self.config)

    def _opened(self, use: Callable[[Environment], Awaitable[T]]) -> T:
        """Run `use` with an environment that is open, and close it."""

        async def run() -> T:
            environment = self._class()(self._config())
            await environment.open(workers=2, seed=0)
            try:
                return await use(environment)
            finally:
                await environment.close()

        return asyncio.run(run())

    def _first(self, environment: Environment) -> list[Task]:
        return list(itertools.islice(iter(environment.tasks(self._split())), self.limit))

    def _tasks(self) -> list[Task]:
        async def read(environment: Environment) -> list[Task]:
            return self._first(environment)

        return self._opened(read)

    def _run(
        self,
        folder: Path,
        replies: Sequence[str] | ReplyFunction,
        limit: int | None = None,
        group_size: int | None = None,
    ) -> list[ScoredGroup]:
        return run_environment(
            self._class(),
            folder=folder,
            replies=replies,
            config=self.config,
            limit=limit or self.limit,
            group_size=group_size or self.group_size,
            split=self._split(),
        )


async def _value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def _reset(episode: Episode | Game) -> list[Message]:
    try:
        messages = await first_messages(episode)
    finally:
        await _value(episode.close())
    assert messages, "reset() gave no message"
    return messages
