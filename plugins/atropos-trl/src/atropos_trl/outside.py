"""An environment of ours in a script of yours with TRL's GRPOTrainer.

from atropos_trl.outside import ForTRL

ours = ForTRL("arithmetic", {"difficulty": "easy"})
GRPOTrainer(model, train_dataset=ours.dataset(100), reward_funcs=ours.reward)

ours = ForTRL("tools-demo")         # tools, or several turns: TRL calls them as methods
GRPOTrainer(model, train_dataset=ours.dataset(100), reward_funcs=ours.reward, environment_factory=ours.factory)
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import keyword
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import (
    AtroposError,
    DataError,
    FunctionCall,
    Message,
    Task,
    ToolCall,
    UsageError,
    assistant,
    clean_text,
)
from atropos_cli.sdk.authoring import load_registry
from atropos_cli.sdk.engine import Hosted, HostedEpisode, LoopThread, Registry

if TYPE_CHECKING:
    from datasets import Dataset

ACT = "act"
"""The tool of an environment that answers texts: TRL has no other way to more than one turn."""
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_log = logging.getLogger(__name__)
_RESERVED = frozenset({"reset", "get_reward"})


class ForTRL:
    """The environment, open as long as the process lives. options: as its flags, with underscores."""

    def __init__(
        self, name: str, options: Mapping[str, Any] | None = None, *, split: str | None = None, seed: int = 0
    ) -> None:
        registry: Registry = load_registry()
        self._host = Hosted(name, options or {}, registry, split=split, seed=seed)
        self._loop = LoopThread()
        self._loop.call(self._host.open(workers=16))
        atexit.register(self._close)
        first = self._loop.call(self._begun(self._host.task(0)))
        self._class = _class_of(self, first.tools)
        self._has_tools = bool(first.tools)
        self._said = False
        self._loop.call(first.close())

    def dataset(self, limit: int) -> Dataset:
        """Rows of the first tasks, or of all there are: `prompt`, `task`, by which reward and factory know
        them, and `env`, by which the reward knows its own rows among others."""
        from datasets import Dataset

        if limit < 1:
            raise UsageError(f"dataset({limit}): a data set has at least one row")
        return Dataset.from_list(self._loop.call(self._rows(limit)))

    @property
    def reward(self) -> Callable[..., list[float | None]]:
        """A reward function of TRL, which names its metrics by it: the sum of the environment's rewards.

        None where the environment failed, and for rows of other environments.
        """

        def reward(completions: Sequence[Any], task: Sequence[str] | None = None, **columns: Any) -> list[float | None]:
            return self._rewarded(completions, task, columns)

        kind = type(self._host.environment)
        reward.__name__ = getattr(kind, "name", kind.__name__)
        return reward

    def _rewarded(
        self, completions: Sequence[Any], task: Sequence[str] | None, columns: Mapping[str, Any]
    ) -> list[float | None]:
        if task is None:
            raise UsageError(
                "the rows have no column `task`, which names the task of a reply",
                hint=f"train_dataset=ForTRL({self._host.name!r}).dataset(LIMIT), and keep its columns",
            )
        played: Sequence[Any] | None = columns.get("environments")
        if self._has_tools and not played:
            raise UsageError(
                f"{self._host.name} has tools, and without them its rewards mean nothing",
                hint="GRPOTrainer(..., environment_factory=ours.factory)",
            )
        of = columns.get("env") or [self._host.name] * len(task)
        games = played or [None] * len(task)
        rows = list(zip(completions, task, games, of, strict=True))
        return self._loop.call(self._rewards(rows))

    def factory(self) -> Played:
        """For `environment_factory`: an object whose methods are the tools. The reward function scores its episode."""
        return self._class()

    def _close(self) -> None:
        self._loop.call(self._host.close())

    async def _rows(self, limit: int) -> list[dict[str, Any]]:
        rows = []
        count = self._host.count()
        for number in range(limit if count is None else min(limit, count)):
            task = self._host.task(number)
            episode = await self._begun(task)
            prompt = [{"role": item.role, "content": clean_text(item.text)} for item in episode.messages]
            await episode.close()
            told = clean_text(json.dumps(task.model_dump(mode="json"), ensure_ascii=False))
            rows.append({"prompt": prompt, "task": told, "env": self._host.name})
        return rows

    async def _rewards(self, rows: Sequence[tuple[Any, str, Any, str]]) -> list[float | None]:
        """Rewards that compare get all rollouts of a task together, as in our runs."""
        values: list[float | None] = [None] * len(rows)
        ended = await asyncio.gather(*(self._ended(*row) for row in rows))
        groups: dict[Any, list[int]] = {}
        for place, row in enumerate(rows):
            if ended[place] is not None:
                groups.setdefault(row[1] if self._host.compares else place, []).append(place)

        async def score(places: Sequence[int]) -> None:
            episodes = [episode for place in places if (episode := ended[place]) is not None]
            for place, rollout in zip(places, await self._host.score_together(episodes), strict=True):
                if rollout.failure is not None:
                    self._unrewarded(rollout.failure.message)
                values[place] = rollout.reward

        try:
            await asyncio.gather(*map(score, groups.values()))
        finally:
            await asyncio.gather(*(episode.close() for episode in ended if episode is not None))
        for place, (_, _, played, _) in enumerate(rows):
            if isinstance(played, self._class):
                if ended[place] is not None:
                    played.value = values[place]
                values[place] = played.value
        return values

    async def _ended(self, completion: Any, task: str, played: Any, env: str) -> HostedEpisode | None:
        """The episode of a row after its last reply; None where there is none to score."""
        if env != self._host.name or (played is not None and not isinstance(played, self._class)):
            return None
        episode = None
        try:
            if played is None:
                episode = await self._begun(_task_of(task))
            else:
                episode, played.episode = played.episode, None
            if episode is not None and not episode.over:
                await episode.step(assistant(_last_text(completion)))
                if played is None and not episode.over:
                    self._say_once_that_turns_are_missing()
        except Exception as error:  # noqa: BLE001 - one rollout's failure must not end a training
            self._unrewarded(error)
            if episode is not None:
                await episode.close()
            return None
        return episode

    def _unrewarded(self, error: Exception | str) -> None:
        why = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        why = error.message if isinstance(error, AtroposError) else why
        _log.warning("no reward for a rollout of %s: %s", self._host.name, why)

    def _say_once_that_turns_are_missing(self) -> None:
        if not self._said:
            self._said = True
            _log.warning(
                "%s does not end with the first reply; its rewards are those of the first turn alone, unless TRL plays "
                "the others: GRPOTrainer(..., environment_factory=ours.factory)",
                self._host.name,
            )

    async def _begun(self, task: Task) -> HostedEpisode:
        episode = self._host.episode(task)
        try:
            await episode.reset()
        except BaseException:
            await episode.close()
            raise
        return episode

    def _start(self, task: str) -> HostedEpisode:
        return self._loop.call(self._begun(_task_of(task)))

    def _say(self, episode: HostedEpisode, reply: Message) -> str:
        return "\n\n".join(message.text for message in self._loop.call(episode.step(reply)))

    def _end(self, episode: HostedEpisode) -> None:
        self._loop.call(episode.close())


class Played:
    """What a factory makes: TRL resets it with a row, and calls its methods as tools. Used again for other rows."""

    _ours: ForTRL
    episode: HostedEpisode | None = None
    """The one that is played; None as soon as it is scored."""
    value: float | None = None
    """Its reward, for a second call."""

    def reset(self, task: str, **columns: Any) -> None:
        """Begin the episode of a row, whose prompt has its first messages already."""
        if self.episode is not None:
            self._ours._end(self.episode)
        self.episode, self.value, self._calls = None, None, 0
        try:
            self.episode = self._ours._start(task)
        except Exception as error:  # noqa: BLE001 - one rollout's failure must not end a training
            self._ours._unrewarded(error)

    def _call(self, tool: str, arguments: dict[str, Any]) -> str:
        if self.episode is None or self.episode.over:
            return "The episode is over."
        if tool == ACT and not self.episode.tools:
            reply = assistant(str(arguments["text"]))
        else:
            given = {name: value for name, value in arguments.items() if value is not None}
            function = FunctionCall(name=tool, arguments=json.dumps(given))
            call = ToolCall(id=f"call_{self._calls}", function=function)
            reply = Message(role="assistant", content="", tool_calls=(call,))
        self._calls += 1
        return self._ours._say(self.episode, reply) or "The episode is over."


def _class_of(ours: ForTRL, tools: Sequence[Mapping[str, Any]]) -> type[Played]:
    """A class with a method for each tool, as TRL wants them: types and a docstring, from which it makes the schema."""
    functions = [dict(tool["function"]) for tool in tools] or [
        {
            "name": ACT,
            "description": "Say or do something in the environment, and see the result.",
            "parameters": {
                "properties": {"text": {"type": "string", "description": "The words."}},
                "required": ["text"],
            },
        }
    ]
    methods: dict[str, Any] = {}
    for function in functions:
        name = str(function["name"])
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or name in _RESERVED:
            raise UsageError(f"TRL's tools are methods, and {name!r} cannot be the name of one")
        methods[name] = _method(name, function)
    return type(f"Played_{ours._host.name.replace('-', '_')}", (Played,), {"_ours": ours, **methods})


def _method(name: str, function: Mapping[str, Any]) -> Any:
    schema = function.get("parameters") or {}
    properties: Mapping[str, Any] = schema.get("properties") or {}
    needed = set(schema.get("required") or ())
    ordered = sorted(properties, key=lambda item: item not in needed)

    def method(self: Played, *args: Any, **kwargs: Any) -> str:
        return self._call(name, dict(zip(ordered, args, strict=False)) | kwargs)

    types = {item: _TYPES.get(str(properties[item].get("type")), str) for item in ordered}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for item in ordered:
        default = inspect.Parameter.empty if item in needed else None
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(item, kind, default=default, annotation=types[item]))
    about = " ".join(str(function.get("description") or f"Call {name}.").split())
    lines = [f"        {item}: {_line(properties[item].get('description') or item)}" for item in ordered]
    returns = "\n\n    Returns:\n        What the environment answers."
    method.__doc__ = about + ("\n\n    Args:\n" + "\n".join(lines) if lines else "") + returns
    method.__name__ = name
    method.__annotations__ = {**types, "return": str}
    method.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    return method


def _task_of(row: str) -> Task:
    try:
        return Task.model_validate(json.loads(row))
    except ValueError as error:
        raise DataError(f"the column `task` has {row[:80]!r}, which is not one of ours") from error


def _line(text: Any) -> str:
    return " ".join(str(text).split())


def _last_text(completion: Any) -> str:
    """The last reply of a completion: a text, or messages. What a model thought is in the text, as in our runs."""
    if isinstance(completion, str):
        return completion
    replies = [message for message in completion if message.get("role") == "assistant"]
    content = replies[-1].get("content") if replies else ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""
