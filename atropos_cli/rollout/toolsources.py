"""Tools that --tools adds to an environment's episodes: offered beside its own, and called here."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.finish import StopReason
from atropos_cli.domain.messages import Message, ToolCall
from atropos_cli.domain.plan import Plan
from atropos_cli.errors import AtroposError, ConfigError, PluginError
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.environment import Episode, MaybeAwaitable, RoleModel
from atropos_cli.ports.toolsource import ToolsConfig, ToolSession, ToolSource
from atropos_cli.redaction import redacted
from atropos_cli.rollout.backends import close_part
from atropos_cli.rollout.references import make_tools
from atropos_cli.rollout.returned import messages_of, tools_of
from atropos_cli.text.toolcalls import parse_tool_calls
from atropos_cli.tools.environment import introduced, results_as_user, unreadable

T = TypeVar("T")
CALLS = "calls_of_sources"
"""The key of `rollout.info` with the record of the calls."""


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source that was opened, and the tools that it offers."""

    label: str
    source: ToolSource
    tools: tuple[JsonDict, ...]

    @property
    def config(self) -> ToolsConfig:
        """Its options."""
        config: ToolsConfig = self.source.config
        return config


async def open_sources(plan: Plan, registry: Registry, stack: contextlib.AsyncExitStack) -> tuple[OpenSource, ...]:
    """The plan's sources of tools, open until the stack closes. Raises AtroposError."""
    found: list[OpenSource] = []
    for ref in plan.tools:
        label = f"{ref.name}:{ref.target}"
        source = make_tools(registry.find("toolset", ref.name, dist=ref.dist), ref.target, {**ref.config, **ref.access})
        stack.push_async_callback(close_part, source)
        try:
            listed = await source.open(workers=plan.execution.workers)
        except AtroposError:
            raise
        except Exception as error:
            raise ConfigError(f"the tools of {label} cannot be had: {type(error).__name__}: {error}") from error
        found.append(OpenSource(label, source, _chosen(label, listed, source.config.only)))
    names = Counter(name_of(tool) for one in found for tool in one.tools)
    if doubled := sorted(name for name, count in names.items() if count > 1):
        raise ConfigError(f"two sources have a tool {doubled[0]!r}", hint="choose with --tool.NAME.only TOOL")
    return tuple(found)


def _chosen(label: str, listed: Sequence[JsonDict], only: Sequence[str]) -> tuple[JsonDict, ...]:
    names = [name_of(tool) for tool in listed]
    if missing := [name for name in only if name not in names]:
        raise ConfigError(f"{label} has no tool {missing[0]!r}", hint=f"it has: {', '.join(names) or 'none'}")
    chosen = tuple(tool for tool in listed if not only or name_of(tool) in only)
    if not chosen:
        raise ConfigError(f"{label} offers no tools", hint="ask the server for its tools, or drop it from --tools")
    return chosen


def name_of(tool: Mapping[str, Any]) -> str:
    """The name of a tool, by its schema."""
    return str(tool["function"]["name"])


async def listed_tools(plan: Plan, registry: Registry) -> list[tuple[str, tuple[JsonDict, ...]]]:
    """The tools that each source of a plan offers now. Starts and ends the sources. Raises AtroposError."""
    async with contextlib.AsyncExitStack() as stack:
        return [(one.label, one.tools) for one in await open_sources(plan, registry, stack)]


def with_sources(episode: Episode, sources: Sequence[OpenSource]) -> Episode:
    """The episode with the tools of the sources, where there are any."""
    return SourcedEpisode(episode, sources) if sources else episode


@dataclass(slots=True)
class _Record:
    """The calls of one episode."""

    calls: list[JsonDict] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, source: str, tool: str, outcome: str, seconds: float, text: str) -> None:
        self.outcomes[outcome] += 1
        about: JsonDict = {"source": source, "tool": tool, "outcome": outcome}
        self.calls.append({**about, "seconds": round(seconds, 3), "characters": len(text)})


class SourcedEpisode(Episode):
    """An episode of any environment, with more tools.

    Calls of those tools are executed here, and do not reach the environment: it steps with the first reply that calls
    none of them, or with the other calls of a reply.
    """

    def __init__(self, inner: Episode, sources: Sequence[OpenSource]) -> None:
        self.inner = inner
        self._sources = sources
        self._owner = {name_of(tool): one for one in sources for tool in one.tools}
        self._sessions: dict[str, ToolSession] = {}
        self._record = _Record()
        self._turns = 0
        self._most_turns = max(one.config.max_turns for one in sources)
        self._in_prompt = False
        self._own_stop: StopReason | None = None

    # What the engine reads and sets is the inner episode's.
    @property
    def prefill(self) -> str:  # type: ignore[override]
        """See Episode."""
        return self.inner.prefill

    @property
    def choices(self) -> Sequence[str]:  # type: ignore[override]
        """See Episode."""
        return self.inner.choices

    @property
    def tools(self) -> Sequence[JsonDict]:  # type: ignore[override]
        """The environment's own, then those of the sources. Raises PluginError where one name means two tools."""
        own = tools_of(self.inner)
        for tool in own:
            if name_of(tool) in self._owner:
                label = self._owner[name_of(tool)].label
                raise PluginError(
                    f"the environment and {label} both have a tool {name_of(tool)!r}",
                    hint="choose the server's tools with --tool.NAME.only TOOL",
                )
        return (*own, *(tool for one in self._sources for tool in one.tools))

    @property
    def tools_in_prompt(self) -> bool:  # type: ignore[override]
        """See Episode."""
        return self._in_prompt

    @property
    def models(self) -> Mapping[str, RoleModel]:
        """See Episode."""
        return self.inner.models

    @models.setter
    def models(self, models: Mapping[str, RoleModel]) -> None:
        self.inner.models = models

    @property
    def stop_reason(self) -> StopReason | None:  # type: ignore[override]
        """See Episode."""
        return self._own_stop or self.inner.stop_reason

    async def reset(self) -> Sequence[Message]:
        """The environment's first messages, with the tools described in them where that is wanted."""
        messages: Sequence[Message] = messages_of(self.inner, "reset", await _awaited(self.inner.reset()))
        described = any(one.config.tools_in == "prompt" for one in self._sources)
        self._in_prompt = described or self.inner.tools_in_prompt
        tools = self.tools
        if not self._in_prompt:
            return messages
        own = {name_of(tool) for tool in self.inner.tools} if self.inner.tools_in_prompt else set()
        return introduced(messages, [tool for tool in tools if name_of(tool) not in own])

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """Execute the calls of the sources' tools; all else is the environment's."""
        mine = [call for call in reply.tool_calls or () if self._is_mine(call)]
        if not mine:
            return await self._of_inner(self.inner.step(reply))
        if self._over():
            return None
        results = {id(call): await self._called(call) for call in mine}
        others = tuple(call for call in reply.tool_calls or () if id(call) not in results)
        messages = [results[id(call)] for call in mine]
        if others:
            found = await _awaited(self.inner.step(reply.replace(tool_calls=others)))
            if found is None:
                return None
            messages += messages_of(self.inner, "step", found)
        return self._told(messages)

    async def malformed(self, reply: Message, fault: str) -> Sequence[Message] | None:
        """The environment's answer where it has tools; else the model reads the fault, and may try again."""
        if self.inner.tools:
            return await self._of_inner(self.inner.malformed(reply, fault))
        return None if self._over() else unreadable(reply, fault, in_prompt=self._in_prompt)

    def result(self) -> JsonDict:
        """The environment's, with a record of the calls."""
        return {**self.inner.result(), CALLS: list(self._record.calls)}

    def metrics(self) -> dict[str, float]:
        """The environment's, and the calls; numbers of one name are added."""
        metrics = dict(self.inner.metrics())
        outcomes = self._record.outcomes
        counts = {"tool_calls": outcomes.total(), **{f"tool_{k}": n for k, n in outcomes.items() if k != "ok"}}
        for name, count in counts.items():
            metrics[name] = metrics.get(name, 0.0) + count
        return metrics

    async def close(self) -> None:
        """Close the sessions, then the episode; the first error counts."""
        sessions, self._sessions = list(self._sessions.values()), {}
        try:
            for closed in await asyncio.gather(*(one.close() for one in sessions), return_exceptions=True):
                if isinstance(closed, Exception):
                    raise closed
        finally:
            await _awaited(self.inner.close())

    def _is_mine(self, call: ToolCall) -> bool:
        """Also of a tool that does not exist, where the environment has none."""
        return call.function.name in self._owner or not self.inner.tools

    def _over(self) -> bool:
        self._turns += 1
        if self._turns < self._most_turns:
            return False
        self._own_stop = "step_limit"
        return True

    async def _of_inner(self, result: MaybeAwaitable[Sequence[Message] | None]) -> Sequence[Message] | None:
        found = await _awaited(result)
        return self._told(messages_of(self.inner, "step", found)) if found else found

    def _told(self, messages: Sequence[Message]) -> Sequence[Message]:
        return results_as_user(messages) if self._in_prompt else messages

    async def _called(self, call: ToolCall) -> Message:
        name = call.function.name
        owner = self._owner.get(name)
        label, began = "" if owner is None else owner.label, time.monotonic()
        text, outcome = await self._outcome(owner, call)
        self._record.add(label, name, outcome, time.monotonic() - began, text)
        return Message(role="tool", content=text, tool_call_id=call.id, name=name)

    async def _outcome(self, owner: OpenSource | None, call: ToolCall) -> tuple[str, str]:
        name = call.function.name
        if owner is None:
            return f"error: there is no tool {name!r}; there are: {', '.join(self._owner)}", "refused"
        parse = parse_tool_calls({"tool_calls": [call.model_dump()]}, "openai")
        if parse.status != "ok":
            return f"error: the arguments cannot be read ({parse.error})", "refused"
        if owner.label not in self._sessions:
            self._sessions[owner.label] = owner.source.session()
        try:
            result = await self._sessions[owner.label].call(name, parse.calls[0].arguments)
        except TimeoutError:
            return f"error: {name} took longer than {owner.config.timeout:g} s", "timeout"
        text, most = clean_text(redacted(result.text)), owner.config.output
        text = text if len(text) <= most else f"{text[:most]}\n... ({len(text) - most} more characters)"
        return (f"error: {text}", "error") if result.error else (text, "ok")


async def _awaited(value: T | Awaitable[T]) -> T:
    return await value if inspect.isawaitable(value) else value
