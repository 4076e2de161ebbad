"""Environments whose episodes are conversations of a model with tools."""

from __future__ import annotations

import json
from abc import ABC
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message, system, user
from atropos_cli.domain.task import Task
from atropos_cli.errors import PluginError
from atropos_cli.ports.environment import Config, Environment, Episode
from atropos_cli.tools.toolbox import Limits, Toolbox

_INTRODUCTION = """\
You may call the functions below, which are given as JSON schemas, one a line.

{schemas}

To call one, write its name and arguments as JSON between tags, one call for each pair of tags:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
The results come with the next message. Without a call, your reply is your answer."""


class ToolConfig(Config):
    """Options of every tool environment."""

    max_turns: int = Field(default=10, ge=1, description="Replies that the model may give in an episode.")
    tool_timeout: float = Field(default=30.0, gt=0, description="Seconds that a call of a tool may take.")
    tool_output: int = Field(default=8000, ge=1, description="Most characters of a tool's result.")
    tools_in: Literal["template", "prompt"] = Field(
        default="template",
        description="Where the model sees its tools: in the server's chat template, or in the system message.",
    )
    isolate: bool = Field(default=False, description="Run each call of a tool in an isolated process of its own.")


class ToolEpisode(Episode):
    """The model calls tools until it replies without a call."""

    def __init__(self, task: Task, config: ToolConfig, make: Callable[[], Any]) -> None:
        self.task = task
        self.config = config
        limits = Limits(config.tool_timeout, config.tool_output, config.isolate)
        self.toolbox = Toolbox(make, limits)
        self.tools_in_prompt = config.tools_in == "prompt"
        self.turns = 0
        self.ended_with: str | None = None
        self._used: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()

    async def reset(self) -> Sequence[Message]:
        """The prompt of the task."""
        await self.toolbox.open()
        self.tools = self.toolbox.schemas
        return introduced(self.task.prompt, self.tools) if self.tools_in_prompt else self.task.prompt

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """Execute the calls of the reply, in order. The last reply that is allowed has none executed."""
        self.turns += 1
        if not reply.tool_calls:
            return await self.answered(reply)
        if self._at_limit():
            return None
        messages: list[Message] = []
        for call in reply.tool_calls:
            outcome = await self.toolbox.call(call)
            self._used[call.function.name] += outcome.kind != "refused"
            self._outcomes[outcome.kind] += 1
            if outcome.over:
                self.ended_with = outcome.text
                return None
            messages.append(Message(role="tool", content=outcome.text, tool_call_id=call.id, name=call.function.name))
        return results_as_user(messages) if self.tools_in_prompt else messages

    def malformed(self, reply: Message, fault: str) -> Sequence[Message] | None:
        """Nothing is executed: the model is told what is wrong, and may try again."""
        self.turns += 1
        if self._at_limit():
            return None
        return unreadable(reply, fault, in_prompt=self.tools_in_prompt)

    async def answered(self, reply: Message) -> Sequence[Message] | None:
        """The reply calls nothing: by default the episode is over. Override where somebody answers it."""
        return None

    def result(self) -> JsonDict:
        """How often each tool was called, and what ended the episode."""
        used: JsonDict = {name: count for name, count in self._used.items() if count}
        return {"tools_used": used} | ({} if self.ended_with is None else {"ended_with": self.ended_with})

    def metrics(self) -> dict[str, float]:
        """Turns, calls, and calls without a result."""
        wrong = {kind: self._outcomes[kind] for kind in ("refused", "error", "timeout") if self._outcomes[kind]}
        counts = {"turns": self.turns, "tool_calls": self._outcomes.total()}
        return {name: float(count) for name, count in (counts | {f"tool_{k}": n for k, n in wrong.items()}).items()}

    async def close(self) -> None:
        """Close what the tools hold."""
        await self.toolbox.close()

    def _at_limit(self) -> bool:
        if self.turns < self.config.max_turns:
            return False
        self.stop_reason = "step_limit"
        return True


def introduced(prompt: Sequence[Message], tools: Sequence[JsonDict]) -> list[Message]:
    """The prompt with the tools described in its system message."""
    text = _INTRODUCTION.format(schemas="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if prompt and prompt[0].role in ("system", "developer"):
        first: Message = prompt[0].replace(content=f"{prompt[0].text}\n\n{text}")
        return [first, *prompt[1:]]
    return [system(text), *prompt]


def results_as_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Results as a template reads them that knows no role `tool`: together in one message of the user."""
    results = [message for message in messages if message.role == "tool"]
    if not results:
        return messages
    told = user("\n".join(f"<tool_response>\n{result.text}\n</tool_response>" for result in results))
    return [told, *(message for message in messages if message.role != "tool")]


def unreadable(reply: Message, fault: str, *, in_prompt: bool) -> list[Message]:
    """What the model reads of a call that cannot be read: an answer to each call that the server found."""
    text = f"Your tool call cannot be read ({fault}), so nothing was executed. Write it again."
    calls = () if in_prompt else reply.tool_calls or ()
    if not calls:
        return [user(text)]
    return [Message(role="tool", content=text, tool_call_id=call.id, name=call.function.name) for call in calls]


class ToolEnvironment(Environment, ABC):
    """An environment whose model calls Python functions.

    `tools` are the functions, or override `toolbox` where each episode has its own. A subclass with more options
    extends `ToolConfig`.
    """

    Config: ClassVar[type[BaseModel]] = ToolConfig
    tools: ClassVar[Sequence[Callable[..., Any]]] = ()

    def toolbox(self, task: Task) -> Any:
        """The functions for one episode, or an object whose public methods they are; its close() is called at the end.

        Called in the thread in which the functions run that are not asynchronous.
        """
        if not self.tools:
            raise PluginError(
                f"{type(self).__name__} has no tools",
                hint="tools = (function,) in the class, or override toolbox(task)",
            )
        return self.tools

    def episode(self, task: Task) -> Episode:
        """A conversation about the task's prompt."""
        return ToolEpisode(task, self.config, lambda: self.toolbox(task))
