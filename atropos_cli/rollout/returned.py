"""What plugins' methods returned, checked where it comes in: the message names the method and what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.domain.task import Task
from atropos_cli.errors import PluginError
from atropos_cli.plugins.errortext import found
from atropos_cli.ports.environment import Environment, Episode, Game, GameEnvironment


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


def game_of(environment: GameEnvironment, task: Task) -> Game:
    """A game of a task. Raises TypeError when it is none, ValueError when its players are not different names."""
    game: Any = environment.game(task)
    if not isinstance(game, Game):
        raise TypeError(f"{type(environment).__name__}.game() returned {_what(game)}, not a Game object")
    players: Any = getattr(game, "players", None)
    names = [] if isinstance(players, str) or not isinstance(players, Iterable) else list(players)
    if not names or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise ValueError(f"{type(game).__name__}.players is {players!r}, not a list of different names")
    return game


def seen_of(game: Game, method: str, value: Any) -> dict[str, list[Message]]:
    """What reset() or step() of a game lets each player see. Raises TypeError for anything else."""
    if not isinstance(value, Mapping):
        name = type(game).__name__
        raise TypeError(f'{name}.{method}() returned {_what(value)}, not messages by player: {{"x": [user("...")]}}')
    return {player: messages_of(game, method, seen) if seen else [] for player, seen in value.items()}


def messages_of(episode: Episode | Game, method: str, value: Any) -> list[Message]:
    """The messages that reset() or step() returned. Raises TypeError for anything else, ValueError for no beginning.

    Whatever they carry, this model did not sample them here: a reply that is shown to another player, or again, has
    its tokens in the prompt that follows, and is not trained on a second time.
    """
    messages = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    if not all(isinstance(item, Message) for item in messages) or isinstance(value, Message):
        name = type(episode).__name__
        raise TypeError(f'{name}.{method}() returned {_what(value)}, not a list of messages like [user("...")]')
    if method == "reset" and not messages:
        raise ValueError("the episode began without any message")
    return [_unsampled(message) for message in messages]


def _unsampled(message: Message) -> Message:
    if message.tokens is None and message.finish_reason is None:
        return message
    return message.model_copy(update={"tokens": None, "finish_reason": None})


def tools_of(episode: Episode) -> tuple[JsonDict, ...]:
    """The tools that it offers now. Raises PluginError for anything but schemas."""
    tools: Any = episode.tools
    listed = isinstance(tools, Iterable) and not isinstance(tools, str | Mapping)
    made = tuple(tools) if listed else ()
    if not listed or not all(isinstance(tool, Mapping) for tool in made):
        wrong = next((tool for tool in made if not isinstance(tool, Mapping)), tools)
        raise PluginError(
            f"{type(episode).__name__}.tools has {_what(wrong)}, not a list of OpenAI function schemas",
            hint="for functions use ToolEnvironment, or tool_of(function).schema",
        )
    return made


def values_of(value: Any, count: int) -> list[Any]:
    """The values of a reward over a group, one for each rollout. Raises TypeError and ValueError."""
    if value is None or not hasattr(value, "__len__") or isinstance(value, str | dict):
        raise TypeError(f"it returned {_what(value)}, not a list with a number for each rollout")
    if len(value) != count:
        raise ValueError(f"{len(value)} values for {count} rollouts")
    return list(value)


def _what(value: Any) -> str:
    return "nothing" if value is None else found(value)
