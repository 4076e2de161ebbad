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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atropos_cli.sdk import AtroposError, FunctionCall, Message, Task, ToolCall, UsageError, assistant
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
        self._loop.call(first.close())

    def dataset(self, limit: int) -> Dataset:
        """Rows of the first tasks: `prompt`, and `task`, by which reward and factory know them."""
        from datasets import Dataset

        return Dataset.from_list(self._loop.call(self._rows(limit)))

    def reward(self, completions: Sequence[Any], task: Sequence[str], **columns: Any) -> list[float | None]:
        """A reward function of TRL: the sum of the environment's rewards. None where the environment failed."""
        played: Sequence[Played] | None = columns.get("environments")
        return self._loop.call(self._rewards(completions, task, played))

    def factory(self) -> Played:
        """For `environment_factory`: an object whose methods are the tools. The reward function scores its episode."""
        return self._class()

    def _close(self) -> None:
        self._loop.call(self._host.close())

    async def _rows(self, limit: int) -> list[dict[str, Any]]:
        rows = []
        for number in range(limit):
            task = self._host.task(number)
            episode = await self._begun(task)
            prompt = [{"role": item.role, "content": item.text} for item in episode.messages]
            await episode.close()
            rows.append({"prompt": prompt, "task": task.model_dump_json()})
        return rows

    async def _rewards(
        self, completions: Sequence[Any], tasks: Sequence[str], played: Sequence[Played] | None
    ) -> list[float | None]:
        games = played if played is not None else [None] * len(tasks)
        given = zip(completions, tasks, games, strict=True)
        return list(await asyncio.gather(*(self._reward(*one) for one in given)))

    async def _reward(self, completion: Any, task: str, played: Played | None) -> float | None:
        try:
            if played is None or played.episode is None:
                episode = await self._begun(Task.model_validate_json(task))
            else:
                episode = played.episode
                played.episode = None
            try:
                if not episode.over:
                    await episode.step(assistant(_last_text(completion)))
                return (await episode.score()).reward
            finally:
                await episode.close()
        except Exception as error:  # noqa: BLE001 - one rollout's failure must not end a training
            why = error.message if isinstance(error, AtroposError) else f"{type(error).__name__}: {error}"
            logging.getLogger(__name__).warning("no reward for a rollout of %s: %s", self._host.name, why)
            return None

    async def _begun(self, task: Task) -> HostedEpisode:
        episode = self._host.episode(task)
        try:
            await episode.reset()
        except BaseException:
            await episode.close()
            raise
        return episode

    def _start(self, task: str) -> HostedEpisode:
        return self._loop.call(self._begun(Task.model_validate_json(task)))

    def _say(self, episode: HostedEpisode, reply: Message) -> str:
        return "\n\n".join(message.text for message in self._loop.call(episode.step(reply)))

    def _end(self, episode: HostedEpisode) -> None:
        self._loop.call(episode.close())


class Played:
    """What a factory makes: TRL resets it with a row, and calls its methods as tools. Used again for other rows."""

    _ours: ForTRL
    episode: HostedEpisode | None = None
    """The one that is played; None as soon as it is scored."""

    def reset(self, task: str, **columns: Any) -> None:
        """Begin the episode of a row, whose prompt has its first messages already."""
        if self.episode is not None:
            self._ours._end(self.episode)
        self.episode = self._ours._start(task)
        self._calls = 0

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
