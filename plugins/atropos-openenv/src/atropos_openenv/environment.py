"""The environment `openenv:URL`: a websocket for each episode, and the engine's model in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from atropos_cli.sdk import ConfigError, Environment, Episode, Message, Task, TaskStream, user
from atropos_cli.sdk.foreign import Data, server_class
from atropos_openenv.actions import (
    ACT,
    Kind,
    Unreadable,
    act_tool,
    arguments_of,
    by_json,
    by_text,
    has_tools,
    instructions,
    kind_of,
    listed,
    seen,
    text_field,
)
from atropos_openenv.config import OpenEnvConfig
from atropos_openenv.session import OpenEnvError, Server, Session, done_of, reward_of


class OpenEnvEpisode(Episode):
    """One session: the model's replies are actions, the observations are its messages."""

    def __init__(self, task: Task, environment: OpenEnvEnvironment) -> None:
        self._task = task
        self._environment = environment
        self._config = environment.config
        self._session: Session | None = None
        self._rewards: list[float] = []
        self._steps = 0
        self._refused = 0
        self._done = False
        self._first: float | None = None

    async def reset(self) -> Sequence[Message]:
        """A session, its first observation, and the tools that it lists."""
        seed = self._task.info["seed"]
        assert self._environment.server is not None
        self._session, said = await self._environment.server.session({**self._config.reset, "seed": seed})
        self._first = reward_of(said)
        if done_of(said):
            raise OpenEnvError("the server says that the episode is over at its reset: there is nothing to reply to")
        if self._environment.lists_tools:
            self.tools = listed(await self._session.tools())
            if not self.tools:
                raise OpenEnvError("the server lists no tools, and its actions are calls of tools")
        elif self._environment.kind == "tools":
            self.tools = [act_tool(self._environment.schema)]
        parts = [
            self._config.instructions or "",
            instructions(self._environment.kind, self._environment.schema),
            seen(said["observation"], self._config.show),
        ]
        return [user("\n\n".join(part for part in parts if part))]

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """One step for each action of the reply; None at the end."""
        if self._environment.kind == "tools":
            return await self._calls(reply)
        try:
            if self._environment.kind == "text":
                action = by_text(reply, self._environment.text_field)
            else:
                action = by_json(reply)
        except Unreadable as error:
            return self._ended([user(f"error: {error}")], counts=True)
        return self._ended([user(await self._act(action))])

    def malformed(self, reply: Message, fault: str) -> Any:
        """Calls that cannot be read are answered with their fault."""
        if self._environment.kind != "tools":
            return self.step(reply.replace(tool_calls=None))
        answers = [
            Message(role="tool", content=f"error: {fault}", tool_call_id=call.id, name=call.function.name)
            for call in reply.tool_calls or ()
        ]
        return self._ended(answers or [user(f"error: {fault}")], counts=True)

    async def _calls(self, reply: Message) -> Sequence[Message] | None:
        if not reply.tool_calls:
            return None
        answers: list[Message] = []
        for call in reply.tool_calls:
            if self._done:
                text = "the episode is over"
            else:
                try:
                    arguments = arguments_of(call.function.arguments)
                except Unreadable as error:
                    self._steps += 1
                    self._refused += 1
                    text = f"error: {error}"
                else:
                    text = await self._call(call.function.name, arguments)
            answers.append(Message(role="tool", content=text, tool_call_id=call.id, name=call.function.name))
        return self._ended(answers)

    async def _call(self, name: str, arguments: Data) -> str:
        if self._environment.lists_tools:
            return await self._act({"type": "call_tool", "tool_name": name, "arguments": arguments})
        if name == ACT:
            return await self._act(arguments)
        self._steps += 1
        self._refused += 1
        return f"error: there is no tool {name!r}; it is called {ACT}"

    async def _act(self, action: Data) -> str:
        """Do it; what the model sees of it. An action that the server refuses is a text, all else an exception."""
        assert self._session is not None
        self._steps += 1
        try:
            said = await self._session.ask("step", action)
        except OpenEnvError as error:
            if not error.refused:
                raise
            self._refused += 1
            return f"error: {error}"
        reward, self._done = reward_of(said), done_of(said)
        if reward is not None:
            self._rewards.append(reward)
        return seen(said["observation"], self._config.show)

    def _ended(self, messages: list[Message], *, counts: bool = False) -> Sequence[Message] | None:
        """The next messages; None at the end. counts: was this reply a step that made none at the server?"""
        if counts:
            self._steps += 1
            self._refused += 1
        if self._done:
            return None
        if self._steps >= self._config.max_steps:
            self.stop_reason = "step_limit"
            return None
        return messages

    def result(self) -> Data:
        """The rewards, step by step."""
        return {"step_rewards": self._rewards, "first_reward": self._first, "done": self._done}

    def metrics(self) -> dict[str, float]:
        """Steps, those that were refused, those with a reward, and the last reward where there is one."""
        counts = {"steps": self._steps, "refused_actions": self._refused, "rewarded_steps": len(self._rewards)}
        last = {"last_reward": self._rewards[-1]} if self._rewards else {}
        return {**{name: float(count) for name, count in counts.items()}, **last}

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()


class OpenEnvEnvironment(Environment):
    """The environment of an OpenEnv server: openenv:URL."""

    name = "openenv"
    Config: ClassVar[type[BaseModel]] = OpenEnvConfig
    rewards = ("openenv_return",)
    alone: ClassVar[bool] = True
    url: ClassVar[str] = ""
    config: OpenEnvConfig
    server: Server | None = None
    schema: Data
    kind: Kind
    lists_tools: bool
    text_field: str

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Ask the server what its actions are."""
        if not self.url:
            raise ConfigError("openenv is a prefix", hint="atropos gen openenv:http://HOST:PORT")
        config = self.config
        self.server = Server(
            self.url, timeout_s=config.timeout_s, capacity_s=config.capacity_s, restart_s=config.restart_s
        )
        self.schema = (await self.server.open())["action"]
        self.lists_tools = has_tools(self.schema)
        self.text_field = text_field(self.schema) or ""
        try:
            self.kind = kind_of(self.schema, self.config.actions)
        except ValueError as error:
            raise ConfigError(f"--actions {self.config.actions}: {error}", hint="--actions auto") from error

    async def close(self) -> None:
        if self.server is not None:
            await self.server.close()

    def tasks(self, split: str) -> TaskStream:
        """Task i is a reset with the seed data_seed + i."""

        def make(index: int) -> Task:
            seed = self.config.data_seed + index
            return Task(id=f"seed-{seed}", info={"seed": seed})

        return TaskStream(make)

    def episode(self, task: Task) -> OpenEnvEpisode:
        """A session of its own."""
        return OpenEnvEpisode(task, self)


def family(rest: str) -> type[OpenEnvEnvironment]:
    """The class for the address of a server. Nothing is asked of it yet."""
    return server_class(OpenEnvEnvironment, rest)
