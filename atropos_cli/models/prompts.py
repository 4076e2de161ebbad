"""From messages to prompt ids, and from sampled ids to text, for backends that run a model in this process.

Chat prompts go through the model's chat template. Where the messages carry the exact tokens of an
earlier turn, these are kept and only what follows is tokenised: tokenising a sampled reply again may
split it differently, and a trainer would then learn on tokens the model never chose.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.errors import BackendError, ContextOverflow, FatalBackendError, RequestRejected
from atropos_cli.ports.backend import Completion
from atropos_cli.timelimit import OverTime, time_limit

AUTO, PLAIN = "auto", "plain"
BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class TokenLimits:
    """What fits a model. context: most tokens of prompt and completion together. vocabulary: number of token ids."""

    context: int
    vocabulary: int

    def room(self, prompt: Sequence[int], max_tokens: int | None) -> int:
        """Most tokens of the completion. Raises ContextOverflow when prompt and completion do not fit."""
        self.check(prompt, "prompt")
        left = self.context - len(prompt)
        if left < (max_tokens or 1):
            asked = f" and {max_tokens} for the completion" if max_tokens else ""
            raise ContextOverflow(
                f"the prompt has {len(prompt)} tokens{asked}; the context holds {self.context}",
                hint="lower --max-tokens, shorten the prompt, or use a model with a longer context",
            )
        return max_tokens or left

    def check_score(self, prefix: Sequence[int], continuation: Sequence[int], *, spare: int = 0) -> None:
        """Both must be ids of the model that fit its context. spare: tokens that the backend needs behind them."""
        self.check(prefix, "prefix")
        self.check(continuation, "continuation")
        length = len(prefix) + len(continuation)
        if length + spare > self.context:
            raise ContextOverflow(
                f"prefix and continuation have {length} tokens, the context holds {self.context - spare}",
                hint="shorten them, or use a model with a longer context",
            )

    def check(self, ids: Sequence[int], what: str) -> None:
        """Raises RequestRejected for no ids, and for ids that the model does not have."""
        if not ids:
            raise RequestRejected(f"the {what} is empty", hint="a model needs at least one token to go on from")
        wrong = next((token for token in ids if not 0 <= token < self.vocabulary), None)
        if wrong is not None:
            raise RequestRejected(
                f"token id {wrong} of the {what} is not in the model's vocabulary (0 to {self.vocabulary - 1})",
                hint="use ids made by this model's tokenizer",
            )


class Prompts:
    """Renders prompts with one tokenizer and one template.

    template: "auto" is the model's own chat template, "plain" the contents joined by blank lines
    (for base models and few-shot prompts), anything else the path of a Jinja chat template.
    """

    def __init__(self, tokenizer: Any, template: str = AUTO, *, model: str = "the model") -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()  # prompts are encoded by the event loop while the worker looks for stop texts
        self.plain = template == PLAIN
        if template not in (AUTO, PLAIN):
            tokenizer.chat_template = _read_template(template)
        if not self.plain and not tokenizer.chat_template:
            raise FatalBackendError(
                f"model {model!r} has no chat template, so messages cannot be made into a prompt",
                hint="give --backend.chat-template plain (contents joined by blank lines), "
                "or --backend.chat-template FILE with a Jinja template",
            )

    @property
    def takes_tools(self) -> bool:
        """Does the template show tools to the model? One that does not name them leaves them out."""
        return not self.plain and "tools" in str(self._tokenizer.chat_template)

    def encode(
        self, messages: Sequence[Message], prefill: str = "", tools: Sequence[JsonDict] | None = None
    ) -> tuple[int, ...]:
        """The prompt's ids, up to where sampling begins: the text that the reply begins with is part of it.

        Raises RequestRejected when there is no such prompt, FatalBackendError for tools that the template leaves out.
        """
        if tools and not self.takes_tools:
            raise FatalBackendError(
                "the model's chat template shows no tools to the model",
                hint="add --tools-in prompt, where the environment has this option, or give a template that does",
            )
        text = self._render(messages, tools) + prefill
        known = _known_ids(messages)
        if known:
            rest = self._rest(text, known)
            if rest is not None:
                return (*known, *self.ids(rest))
        return self._encode(text, special=self.plain)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without special tokens."""
        return self._decode(ids, skip_special=True)

    def ids(self, text: str) -> tuple[int, ...]:
        """The ids of a text, without special tokens added."""
        return self._encode(text, special=False)

    def _encode(self, text: str, *, special: bool) -> tuple[int, ...]:
        with self._lock:
            return tuple(self._tokenizer(clean_text(text), add_special_tokens=special)["input_ids"])

    def _decode(self, ids: Sequence[int], *, skip_special: bool) -> str:
        with self._lock:
            text: str = self._tokenizer.decode(
                list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
            )
        return text

    def _rest(self, text: str, known: tuple[int, ...]) -> str | None:
        """What the rendered text adds to the known ids; None unless these ids are exactly how it begins."""
        begun = self._decode(known, skip_special=False)
        return text[len(begun) :] if text.startswith(begun) else None

    def _render(self, messages: Sequence[Message], tools: Sequence[JsonDict] | None = None) -> str:
        if self.plain:
            return BLANK_LINE.join(_text(message) for message in messages)
        turns = [template_turn(message) for message in messages]
        try:
            with time_limit():
                text: str = self._tokenizer.apply_chat_template(
                    turns, tools=list(tools) if tools else None, tokenize=False, add_generation_prompt=True
                )
        except OverTime as error:
            raise FatalBackendError(f"the model's chat template took too long: {error}") from error
        except Exception as error:  # a template raises whatever its author chose
            roles = ", ".join(message.role for message in messages)
            raise RequestRejected(
                f"the chat template refuses these messages (roles: {roles}): {type(error).__name__}: {error}",
                hint="see which roles and which order the model's chat template allows",
            ) from error
        return text


def _read_template(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FatalBackendError(
            f"chat template {path!r} cannot be read: {error}",
            hint="chat_template is 'auto', 'plain', or the path of a Jinja file",
        ) from error


def _known_ids(messages: Sequence[Message]) -> tuple[int, ...]:
    """The exact ids of everything up to the last reply, where its message carries them; else nothing.

    The prompt's ids hang on the last message before a reply and cover what came since the reply before it.
    """
    ids: list[int] = []
    complete = False
    for message in messages:
        span = message.tokens
        if span is None:
            complete = complete and message.role != "assistant"
            continue
        if span.restart:
            ids = []
        ids.extend(span.ids)
        complete = message.role == "assistant"
    return tuple(ids) if complete else ()


def _text(message: Message) -> str:
    if isinstance(message.content, tuple):
        for part in message.content:
            if part.get("type") != "text":
                raise RequestRejected(
                    f"a {message.role} message holds a part of type {part.get('type')!r}; this backend takes text",
                    hint="use a text-only environment, or a server for multimodal models with --base-url",
                )
    return message.text


def template_turn(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it; tool arguments as objects."""
    turn: dict[str, Any] = {"role": message.role, "content": _text(message)}
    if message.name is not None:
        turn["name"] = message.name
    if message.tool_call_id is not None:
        turn["tool_call_id"] = message.tool_call_id
    if message.reasoning is not None:
        turn["reasoning_content"] = message.reasoning
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    return turn


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class StopText:
    """Finds stop texts in a growing reply.

    Only the end of the reply is decoded at each step: each token holds at least one byte, so that a
    stop text of n bytes lies within the last n tokens, and a few more for characters cut in half.
    """

    _MARGIN = 4

    def __init__(self, prompts: Prompts, stops: Sequence[str]) -> None:
        self._prompts = prompts
        self._stops = tuple(stop for stop in stops if stop)
        self._window = max((len(stop.encode("utf-8", "replace")) for stop in self._stops), default=0) + self._MARGIN

    def found(self, ids: Sequence[int]) -> bool:
        """Does a stop text end in the last token?"""
        if not self._stops:
            return False
        tail = self._prompts.decode(ids[-self._window :])
        return any(stop in tail for stop in self._stops)

    def cut(self, text: str) -> str:
        """The text before the first stop text."""
        ends = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        return text[: min(ends)] if ends else text


class SampledReply(Protocol):
    """What a model sampled: token ids, the end token included, their log-probabilities, and why it ended."""

    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def logprobs(self) -> tuple[float, ...] | None: ...
    @property
    def finish_reason(self) -> str | None: ...


def completion_of(sample: SampledReply, prompts: Prompts, stop: StopText, *, with_tokens: bool) -> Completion:
    """The reply as a message, its text cut at a stop text; with_tokens: with ids and log-probabilities.

    A sample may have a `mask`: which of its tokens were chosen, and are to be trained on. Without one all are.
    """
    text = clean_text(stop.cut(prompts.decode(sample.ids)))
    try:
        tokens = (
            TokenSpan(ids=sample.ids, mask=getattr(sample, "mask", True), logprobs=sample.logprobs)
            if with_tokens
            else None
        )
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise BackendError(
            f"the model gave what is no token data: {problem['msg']} ({problem['input']!r:.60})"
        ) from error
    return Completion(
        message=Message(role="assistant", content=text, finish_reason=sample.finish_reason, tokens=tokens),
        finish_reason=sample.finish_reason,
        completion_tokens=len(sample.ids),
    )


def end_ids(*owners: Any) -> set[int]:
    """The tokens that end a reply, as a generation config, a model's config and a tokenizer name them."""
    found: set[int] = set()
    for owner in owners:
        ids: Any = getattr(owner, "eos_token_id", None)
        found.update(ids if isinstance(ids, list | tuple) else [] if ids is None else [ids])
    return {int(token) for token in found}
