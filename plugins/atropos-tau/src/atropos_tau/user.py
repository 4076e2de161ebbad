"""The simulated user: the model of the role `user`, which sees the conversation from its side and may have tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from atropos_cli.sdk import (
    JsonDict,
    Message,
    RoleModel,
    ToolCall,
    assistant,
    parse_tool_calls,
    split_thinking,
    system,
    user,
)
from atropos_cli.sdk.prompts import Prompt
from atropos_cli.sdk.tools import introduced, results_as_user, unreadable
from atropos_tau.calls import arguments_of
from atropos_tau.checks import STOPS
from atropos_tau.config import Strategy

VERIFY_TRIES = 3
REFLECT_TRIES = 2
FORMAT_TRIES = 3
_LABEL = r"(?im)^[ \t*#]*{}[ \t*]*:[ \t*]*"
_RESPONSE = re.compile(_LABEL.format(r"user[ \t]+response"))
_NEXT = re.compile(_LABEL.format(r"(?:thought|reflection|user[ \t]+response|agent|observation)"))
_VERDICT = re.compile(r"\b(true|false)\b", re.IGNORECASE)
Execute = Callable[[str, JsonDict], Awaitable[str]]
"""Executes a call of a tool of the user's; the result as text."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the user said. stop: it ends the conversation. error: why there is no message, which ends it too."""

    text: str = ""
    stop: bool = False
    error: str | None = None


class User(Protocol):
    """A player of the user. counts: what to report."""

    counts: Counter[str]

    async def reply(self, said: str) -> Said:
        """The answer to a message of the agent."""


def user_message(strategy: Strategy, raw: str) -> Said:
    """What the agent gets of a text of the user's model. With react, the response alone: a thought never leaks."""
    text = raw.strip()
    if strategy == "react":
        found = response_in(text)
        if found is None:
            return Said(error="invalid_user_format")
        text = found
    if not text:
        return Said(error="empty_user_message")
    return Said(text, stop=any(mark in text for mark in STOPS))


def response_in(text: str) -> str | None:
    """The text behind the first label "User Response:", up to another label; None without it."""
    begin = _RESPONSE.search(text)
    if begin is None:
        return None
    end = _NEXT.search(text, begin.end())
    return text[begin.end() : end.start() if end else len(text)].strip()


@dataclass(slots=True)
class Persona:
    """What a simulated user has: texts, scenario, tools, and how many calls it may make before a message."""

    prompt: Prompt
    strategy: Strategy
    guidelines: str
    scenario: str
    tools: Sequence[JsonDict] = ()
    most_calls: int = 10
    tools_in_prompt: bool = False

    def opening(self) -> list[Message]:
        """The system message."""
        text = self.prompt.text("user", guidelines=self.guidelines, scenario=self.scenario)
        if self.strategy == "react":
            text = f"{text}\n\n{self.prompt.text('react')}"
        messages = [system(text)]
        return introduced(messages, self.tools) if self.tools and self.tools_in_prompt else messages


@dataclass(slots=True)
class SimulatedUser:
    """A user that a model plays. before: earlier messages, in the agent's roles."""

    model: RoleModel
    persona: Persona
    execute: Execute
    before: Sequence[Message] = ()
    counts: Counter[str] = field(default_factory=Counter)
    _messages: list[Message] = field(default_factory=list)
    _talk: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._messages = self.persona.opening()
        for message in self.before:
            if message.role == "user":
                self._keep(message.text, message.text)
            elif message.role == "assistant" and not message.tool_calls:
                self._hear(message.text)

    async def reply(self, said: str) -> Said:
        """See User. Calls of tools come first, and are executed."""
        self._hear(said)
        for _ in range(self.persona.most_calls + 1):
            message = await self._ask(self._messages)
            if not await self._acted(message):
                return await self._say(message)
        return Said(error="too_many_user_calls")

    async def _acted(self, message: Message) -> bool:
        """Was it a call, which is executed now?"""
        if not self.persona.tools:
            return False
        if message.tool_calls:
            raw = {"tool_calls": [call.model_dump(mode="json") for call in message.tool_calls]}
            parse = parse_tool_calls(raw, "openai", tools=self.persona.tools)
        else:
            parse = parse_tool_calls(message.text, "auto", tools=self.persona.tools)
        if parse.status == "none":
            return False
        if parse.status == "error":
            self.counts["user_malformed"] += 1
            answers = unreadable(message, parse.error or "invalid_json", in_prompt=self.persona.tools_in_prompt)
            self._messages += [message, *answers]
            return True
        number = self.counts["user_calls"]
        calls = message.tool_calls or tuple(
            call.as_tool_call(f"user_call_{number + place}") for place, call in enumerate(parse.calls)
        )
        results = [await self._result(call) for call in calls]
        self._messages += [message, *(results_as_user(results) if self.persona.tools_in_prompt else results)]
        return True

    async def _result(self, call: ToolCall) -> Message:
        self.counts["user_calls"] += 1
        arguments = arguments_of(call)
        text = "Error: the arguments are not a JSON object"
        if arguments is not None:
            text = await self.execute(call.function.name, arguments)
        return Message(role="tool", content=text, tool_call_id=call.id, name=call.function.name)

    async def _say(self, message: Message) -> Said:
        """The message to the agent, as the strategy makes it of the model's reply."""
        raw, said = message.text, self._read(message)
        for _ in range(FORMAT_TRIES - 1):
            if said.error is None:
                break
            self.counts["user_retries"] += 1
            message = await self._ask(self._messages)
            raw, said = message.text, self._read(message)
        if said.error is not None:
            return said
        if self.persona.strategy == "verify":
            raw, said = await self._verified(raw, said)
        elif self.persona.strategy == "reflection":
            raw, said = await self._reflected(raw, said)
        self._keep(raw, said.text)
        return said

    async def _verified(self, raw: str, said: Said) -> tuple[str, Said]:
        """A message that the model itself finds right, or the last of some; the history keeps it."""
        for _ in range(VERIFY_TRIES - 1):
            if await self._is_right(said):
                return raw, said
            self.counts["user_retries"] += 1
            message = await self._ask(self._messages)
            again = self._read(message)
            raw, said = (message.text, again) if again.error is None else (raw, said)
        return raw, said

    async def _reflected(self, raw: str, said: Said) -> tuple[str, Said]:
        """A message that the model finds right, or its last correction. The history keeps the message alone."""
        for _ in range(REFLECT_TRIES):
            if await self._is_right(said):
                break
            self.counts["user_retries"] += 1
            reply = await self._ask([user(self.persona.prompt.text("reflect", **self._case(said)))])
            better = user_message("react", _visible(reply))
            if better.error is None:
                raw, said = better.text, better
        return raw, said

    async def _is_right(self, said: Said) -> bool:
        reply = await self._ask([user(self.persona.prompt.text("verify", **self._case(said)))])
        verdicts = _VERDICT.findall(_visible(reply))
        return bool(verdicts) and verdicts[-1].lower() == "true"

    def _case(self, said: Said) -> dict[str, str]:
        return {"scenario": self.persona.scenario, "conversation": "\n".join(self._talk), "message": said.text}

    async def _ask(self, messages: Sequence[Message]) -> Message:
        """One reply, with the user's tools where the conversation itself is continued."""
        own = messages is self._messages and not self.persona.tools_in_prompt
        tools = self.persona.tools if own else ()
        completions = await self.model.generate(messages, tools=tools or None)
        message: Message = completions[0].message
        return message

    def _read(self, message: Message) -> Said:
        return user_message(self.persona.strategy, _visible(message))

    def _hear(self, said: str) -> None:
        self._messages.append(user(said))
        self._talk.append(f"agent: {said}")

    def _keep(self, raw: str, said: str) -> None:
        self._messages.append(assistant(raw))
        self._talk.append(f"customer: {said}")


def _visible(message: Message) -> str:
    """The text without thinking; "" where the thinking was cut off."""
    return split_thinking(message.text)[1] or ""
