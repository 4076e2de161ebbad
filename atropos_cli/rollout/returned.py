"""What plugins' methods returned, checked where it comes in: the message names the method and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from atropos_cli.domain.messages import Message
from atropos_cli.domain.task import Task
from atropos_cli.errors import PluginError
from atropos_cli.plugins.errortext import found
from atropos_cli.ports.environment import Environment, Episode


def tasks_of(environment: Environment, split: str) -> Iterable[Task]:
    """The tasks of a split. Raises PluginError for what cannot be walked."""
    source: Any = environment.tasks(split)
    if isinstance(source, str | Task) or not isinstance(source, Iterable):
        what = "nothing" if source is None else found(source)
        raise PluginError(
            f"{type(environment).__name__}.tasks() returned {what}, not tasks",
            hint="return a list of Task, or yield each",
        )
    tasks: Iterable[Task] = source
    return tasks


def task_of(environment: Environment, value: Any) -> Task:
    """One of its tasks. Raises PluginError for anything else."""
    if not isinstance(value, Task):
        raise PluginError(
            f"{type(environment).__name__}.tasks() gave {found(value)}, not a Task",
            hint='Task(id="1", prompt=(user("..."),))',
        )
    return value


def episode_of(environment: Environment, task: Task) -> Episode:
    """A rollout of a task. Raises TypeError when it is not an episode."""
    episode: Any = environment.episode(task)
    if not isinstance(episode, Episode):
        raise TypeError(f"{type(environment).__name__}.episode() returned {_what(episode)}, not an Episode object")
    return episode


def messages_of(episode: Episode, method: str, value: Any) -> list[Message]:
    """The messages that reset() or step() returned. Raises TypeError for anything else, ValueError for no beginning."""
    messages = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not all(isinstance(item, Message) for item in messages) or isinstance(value, Message):
        name = type(episode).__name__
        raise TypeError(f'{name}.{method}() returned {_what(value)}, not a list of messages like [user("...")]')
    if method == "reset" and not messages:
        raise ValueError("the episode began without any message")
    return messages


def values_of(value: Any, count: int) -> list[Any]:
    """The values of a reward over a group, one for each rollout. Raises TypeError and ValueError."""
    if value is None or not hasattr(value, "__len__") or isinstance(value, str | dict):
        raise TypeError(f"it returned {_what(value)}, not a list with a number for each rollout")
    if len(value) != count:
        raise ValueError(f"{len(value)} values for {count} rollouts")
    return list(value)


def _what(value: Any) -> str:
    return "nothing" if value is None else found(value)
