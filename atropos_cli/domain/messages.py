"""Chat messages in the OpenAI shape, with the sampled tokens hanging on the message they made."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.tokendata import Logprobs, Mask, TokenIds

Role = Literal["system", "developer", "user", "assistant", "tool"]


class FunctionCall(Frozen):
    """`arguments` is the JSON text as the model wrote it, as in the OpenAI format."""

    name: str
    arguments: str = "{}"


class ToolCall(Frozen):
    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class TokenSpan(Frozen):
    """The tokens of one message, exactly as the server counted them. Nothing is converted: see `domain.tokendata`.

    ids: token ids, length n.
    mask: True where a trainer should learn; one bool stands for the whole span.
    logprobs: natural-log probabilities at sampling time, length n, or None when not known.
    restart: the ids hold the whole context up to here, because the context sent to the model does
        not extend the tokens seen so far (a template that rewrites history); a training sequence
        starts anew at such a span.
    version: of the weights that sampled it, where they change while rollouts are made elsewhere.
    """

    ids: TokenIds
    mask: Mask = False
    logprobs: Logprobs | None = None
    restart: bool = False
    version: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _lengths(self) -> TokenSpan:
        n = len(self.ids)
        if not isinstance(self.mask, bool) and len(self.mask) != n:
            raise ValueError(f"mask has {len(self.mask)} entries for {n} ids")
        if self.logprobs is not None and len(self.logprobs) != n:
            raise ValueError(f"logprobs has {len(self.logprobs)} entries for {n} ids")
        return self


class Message(Frozen):
    """One chat message. `content` is text, OpenAI content parts, or None beside tool calls.

    `reasoning` is what the server returned apart as `reasoning_content`; it is never part of
    `content`, so no verifier can find an answer in it by accident.
    """

    role: Role
    content: str | tuple[JsonDict, ...] | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    finish_reason: str | None = None
    tokens: TokenSpan | None = Field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The text of the content: parts joined by newlines, nothing for None."""
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(str(part["text"]) for part in self.content if part.get("type") == "text")


def system(text: str) -> Message:
    """A system message."""
    return Message(role="system", content=text)


def user(text: str) -> Message:
    """A user message."""
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    """An assistant message."""
    return Message(role="assistant", content=text)
