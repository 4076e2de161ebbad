"""The environment `nemo-gym:URL`: a session of the server for each episode, its tools, and its verify at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import BaseModel

from atropos_cli.sdk import (
    ConfigError,
    Environment,
    Episode,
    JsonDict,
    Message,
    Task,
    TaskStream,
    ToolCall,
    user,
)
from atropos_cli.sdk.foreign import server_class
from atropos_nemo_gym.config import NemoGymConfig
from atropos_nemo_gym.rows import PARAMS, Data, Rows, numbers_of, output_of, prompt_of, response_of, tools_of
from atropos_nemo_gym.server import NemoGymError, Server, Session

_MODEL = "policy"


class NemoGymEpisode(Episode):
    """The model calls the server's tools until it replies without a call; then the server verifies the episode."""

    def __init__(self, row: Data, server: Server, config: NemoGymConfig) -> None:
        self._row = row
        self._server = server
        self._config = config
        self._session: Session | None = None
        self._said: list[Message] = []
        self._names: set[str] = set()
        self._turns = 0
        self._calls = 0
        self._refused = 0
        self._verified: JsonDict | None = None
        self._broken = False

    async def reset(self) -> Sequence[Message]:
        """A session of the server, seeded with the row, and the row's prompt."""
        params = self._row[PARAMS]
        prompt = prompt_of(params)
        tools = tools_of(params)
        self.tools = tools
        self._names = {str(tool["function"]["name"]) for tool in tools}
        self._session = self._server.session()
        status, text = await self._session.post("seed_session", self._row)
        if status != 200:
            raise NemoGymError(f"/seed_session of {self._server.url} answered {status}: {text}")
        return prompt

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """Do the calls of the reply, in order; the end is verified."""
        self._turns += 1
        calls = tuple(
            call if call.id else call.model_copy(update={"id": f"call_{self._turns}_{place}"})
            for place, call in enumerate(reply.tool_calls or ())
        )
        self._said.append(reply.replace(tool_calls=calls or None))
        if not calls:
            await self._end()
            return None
        answers = [await self._call(call) for call in calls]
        return await self._next(answers)

    async def malformed(self, reply: Message, fault: str) -> Sequence[Message] | None:
        """Calls that cannot be read are answered with their fault; nothing is asked of the server."""
        self._turns += 1
        self._refused += 1
        text = json.dumps({"error": f"Invalid tool call: {fault}"})
        self._said.append(reply)
        answers = [
            Message(role="tool", content=text, tool_call_id=call.id, name=call.function.name)
            for call in reply.tool_calls or ()
        ]
        return await self._next(answers or [user(text)])

    async def _next(self, answers: list[Message]) -> Sequence[Message] | None:
        self._said += answers
        if self._turns < self._config.max_turns:
            return answers
        self.stop_reason = "step_limit"
        await self._end()
        return None

    async def _call(self, call: ToolCall) -> Message:
        """The server's answer, whatever its status: an error is for the model to read."""
        assert self._session is not None
        self._calls += 1
        try:
            arguments = json.loads(call.function.arguments or "{}")
        except (ValueError, RecursionError) as error:
            self._refused += 1
            text = json.dumps({"error": f"Invalid tool call arguments: {error}"})
        else:
            # A name is one segment of the path: the routes of the protocol itself are not tools.
            if call.function.name in self._names:
                status, text = await self._session.post(quote(call.function.name, safe=""), arguments)
                self._refused += status != 200
            else:
                self._refused += 1
                text = json.dumps({"error": f"There is no tool {call.function.name!r}."})
        text = text[: self._config.tool_output]
        return Message(role="tool", content=text, tool_call_id=call.id, name=call.function.name)

    async def _end(self) -> None:
        """Have the episode verified. Raises NemoGymError."""
        assert self._session is not None
        params = self._row[PARAMS]
        cut = self.stop_reason is not None or (bool(self._said) and self._said[-1].finish_reason == "length")
        response = response_of(params, output_of(self._said), model=_MODEL, now=time.time(), cut=cut)
        try:
            self._verified = await self._session.ask("verify", {**self._row, "response": response})
        except NemoGymError:
            self._broken = True
            raise

    def result(self) -> JsonDict:
        """What verify said, without the row and the response, which it repeats."""
        if self._verified is None:
            return {}
        known = {*self._row, "reward", "response"}
        kept = {key: value for key, value in self._verified.items() if key not in known}
        # A row may have a reward, too: that of an episode in which it was collected.
        return {"verified_reward": self._verified.get("reward"), "verified": kept}

    def metrics(self) -> dict[str, float]:
        """Turns and calls, and the numbers that verify gives beside the reward."""
        own = {"turns": self._turns, "tool_calls": self._calls, "refused_calls": self._refused}
        return {**numbers_of(self._verified or {}, self._row), **{key: float(value) for key, value in own.items()}}

    async def close(self) -> None:
        """End the session. An episode that outgrew the model's context is verified as it is."""
        if self._session is None:
            return
        try:
            if self._verified is None and not self._broken and self._said and self._said[-1].role != "assistant":
                await self._end()
        finally:
            await self._session.close()


class NemoGymEnvironment(Environment):
    """A resource server of NeMo Gym, with the tasks of a JSONL file: nemo-gym:URL."""

    name = "nemo-gym"
    Config: ClassVar[type[BaseModel]] = NemoGymConfig
    rewards = ("nemo_gym_reward",)
    url: ClassVar[str] = ""
    config: NemoGymConfig
    _server: Server | None = None
    _rows: Rows | None = None

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Find the rows, and the server."""
        if not self.url:
            raise ConfigError("nemo-gym is a prefix", hint="atropos gen nemo-gym:http://HOST:PORT --env.data FILE")
        self._read()
        self._server = Server(self.url, self.config.timeout_s)
        await self._server.open()

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()

    def tasks(self, split: str) -> TaskStream:
        """Task i is row i of the file. Training asks before it opens anything."""
        return TaskStream(self._task, len(self._read()))

    def _read(self) -> Rows:
        """The rows of the file, found once. Raises ConfigError."""
        if self._rows is None:
            if self.config.data is None:
                raise ConfigError("nemo-gym needs the file of the server's tasks", hint="--env.data FILE.jsonl")
            try:
                self._rows = Rows(self.config.data)
            except OSError as error:
                raise ConfigError(f"cannot read {self.config.data}: {error.strerror or error}") from error
        return self._rows

    def _task(self, index: int) -> Task:
        params = self._read()[index][PARAMS]
        return Task(id=f"row-{index:06}", prompt=prompt_of(params), info={"row": index})

    def episode(self, task: Task) -> NemoGymEpisode:
        """A session of its own."""
        assert self._server is not None
        return NemoGymEpisode(self._read()[_index(task)], self._server, self.config)


def _index(task: Task) -> int:
    found: Any = task.info["row"]
    return int(found)


def family(rest: str) -> type[NemoGymEnvironment]:
    """The class for the address of a server. Nothing is asked of it yet."""
    return server_class(NemoGymEnvironment, rest)
