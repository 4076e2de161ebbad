"""Answers of an OpenAI-compatible server, read into a Generation. Pure: bytes in, Generation and notes out.

Servers differ in where they put things; what each key is called where:

    sampled token ids     choices[].token_ids            vLLM, SGLang completions
                          choices[].response_token_ids   SGLang 0.5 chat
                          logprobs.content[].id          llama.cpp
                          "token_id:123" as the token    vLLM --return-tokens-as-token-ids
    prompt token ids      prompt_token_ids               vLLM chat; per choice elsewhere
    logprobs              logprobs.content[].logprob     chat;  logprobs.token_logprobs in completions
    thinking apart        message.reasoning_content, .reasoning, content parts of type "thinking"
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from atropos_cli.builtin.openai.errors import ErrorWords, error_words
from atropos_cli.sdk import FunctionCall, Message, TokenSpan, ToolCall, clean_text
from atropos_cli.sdk.backends import Completion, Generation, TokenUsage, finish_of, ids_fault, is_known

# vLLM writes -9999 where a logprob is -inf or missing.
LEAST_LOGPROB = -9998.0
_DIGITS = re.compile(r"[0-9]{1,10}")
_FINISH_KEYS = ("finish_reason", "finishReason", "done_reason")


class NoAnswer(Exception):
    """The body holds no answer. `words` when it holds an error instead."""

    def __init__(self, reason: str, words: ErrorWords | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.words = words


@dataclass(slots=True)
class Notes:
    """What was missing or wrong in the choices of one answer, in numbers of choices.

    bad_token_ids: ids came that are none, of a reply or of the prompt.
    unknown_reason: a finish reason that no server is known to give. at_limit: ended by itself, by its finish reason, at
    exactly the number of tokens that was asked for at most.
    """

    choices: int = 0
    no_token_ids: int = 0
    bad_token_ids: int = 0
    null_logprobs: int = 0
    bad_logprobs: int = 0
    no_finish_reason: int = 0
    bad_tool_calls: int = 0
    unknown_finish_reason: int = 0
    unknown_reason: str = ""
    stopped_at_max_tokens: int = 0


def read_json(body: bytes) -> Any:
    """Parse a body. Raises ValueError. Lone surrogates and bytes that are not UTF-8 do not make it fail."""
    try:
        return from_json(body)
    except ValueError:
        try:
            return json.loads(body.decode("utf-8", "replace"))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def read_answer(
    body: bytes,
    *,
    n: int,
    chat: bool,
    with_tokens: bool,
    prompt_ids: tuple[int, ...] | None = None,
    limit: int | None = None,
) -> tuple[Generation, Notes]:
    """The answer of a 200. Raises NoAnswer.

    prompt_ids: the exact ids that were sent, where ids were sent. limit: the max_tokens that were sent.
    """
    try:
        data = read_json(body)
    except ValueError:
        raise NoAnswer(_not_json(body)) from None
    choices = data.get("choices") if isinstance(data, dict) else None
    if not isinstance(choices, list) or not choices or data.get("error"):
        if isinstance(data, dict) and (data.get("error") or data.get("object") == "error" or "message" in data):
            raise NoAnswer("an error instead of an answer", error_words(data))
        raise NoAnswer("no choices" if isinstance(data, dict) else "JSON that is not an answer")
    if not all(isinstance(choice, dict) for choice in choices):
        raise NoAnswer("choices that are not objects")
    choices = _in_order(choices)[:n]
    notes = Notes(choices=len(choices))
    usage = data.get("usage") if isinstance(data.get("usage"), dict) else {}
    written = _count(usage, "completion_tokens")
    tokens_used = written if n == 1 else None
    completions = tuple(_completion(choice, chat, with_tokens, tokens_used, notes) for choice in choices)
    if limit is not None:
        notes.stopped_at_max_tokens = _stopped_at(limit, completions, written)
    if prompt_ids is None and with_tokens:
        prompt_ids = _prompt_ids(data.get("prompt_token_ids") or choices[0].get("prompt_token_ids"), notes)
    prompt_tokens = _count(usage, "prompt_tokens")
    if prompt_tokens is None:
        prompt_tokens = len(prompt_ids) if prompt_ids is not None else None
    billed = _billed(usage)
    return Generation(completions=completions, prompt_ids=prompt_ids, prompt_tokens=prompt_tokens, usage=billed), notes


def _billed(usage: dict[str, Any]) -> TokenUsage | None:
    """The counts of `usage`, those that are counts; None where the server does not say how much it wrote."""
    completion = _count(usage, "completion_tokens")
    prompt = _count(usage, "prompt_tokens")
    if completion is None or prompt is None:
        return None
    if len(usage) == 2 + ("total_tokens" in usage):
        return TokenUsage(prompt_tokens=prompt, completion_tokens=completion)
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    return TokenUsage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=_count(usage, "prompt_cache_hit_tokens", "cached_tokens") if cached is None else cached,
        reasoning_tokens=_count(usage, "reasoning_tokens") if reasoning is None else reasoning,
    )


def _count(holder: Any, *names: str) -> int | None:
    """The first of these fields that can be a number of tokens; servers write -1, null and floats too."""
    if isinstance(holder, dict):
        for name in names:
            value = holder.get(name)
            if type(value) is int and 0 <= value < 2**53:
                return value
    return None


def _stopped_at(limit: int, completions: Sequence[Completion], used: int | None) -> int:
    """How many ended by themselves, as the server says, with exactly as many tokens as they might have."""
    full = used == limit * len(completions)  # of all of them together: where single counts are not known
    return sum(
        completion.finish_reason == "stop" and (completion.completion_tokens == limit or full)
        for completion in completions
    )


def _not_json(body: bytes) -> str:
    if not body.strip():
        return "an empty body"
    if body.startswith(b"data:"):
        return "an event stream, although none was asked for"
    text = " ".join(body[:120].decode("utf-8", "replace").split())
    printable = "".join(character for character in text if character.isprintable())
    return f"a body that is not JSON: {printable}"


def _in_order(choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choices by their index; in the order of arrival when the indices are useless."""
    indices = [choice.get("index") for choice in choices]
    if all(isinstance(index, int) for index in indices) and len(set(indices)) == len(indices):
        return sorted(choices, key=lambda choice: choice["index"])
    return choices


def _completion(
    choice: dict[str, Any], chat: bool, with_tokens: bool, tokens_used: int | None, notes: Notes
) -> Completion:
    said = next((choice[key] for key in _FINISH_KEYS if choice.get(key) is not None), None)
    finish_reason = finish_of(said) if isinstance(said, str | dict) else None
    if finish_reason == "error":
        raise _broken_off(said)
    if finish_reason is None:
        notes.no_finish_reason += 1
    elif not is_known(finish_reason):
        notes.unknown_finish_reason += 1
        notes.unknown_reason = finish_reason
    span = _span(choice, notes) if with_tokens else None
    if span is not None:
        count: int | None = len(span.ids)
    else:
        count = tokens_used
    if chat:
        message = _message(choice.get("message"), finish_reason, span, notes)
    else:
        text = choice.get("text")
        if text is not None and not isinstance(text, str):
            raise NoAnswer(f"a text of type {type(text).__name__}")
        message = Message(role="assistant", content=clean_text(text or ""), finish_reason=finish_reason, tokens=span)
    return Completion(message=message, finish_reason=finish_reason, completion_tokens=count)


def _broken_off(said: Any) -> NoAnswer:
    """SGLang names the cause beside the reason: a prompt that is too long, say."""
    if not isinstance(said, dict):
        return NoAnswer(f"a completion with finish_reason {said!r}")
    kind, words = said.get("type"), error_words(said)
    words = replace(words, code=str(said.get("status_code") or said.get("code") or ""))
    return NoAnswer(f"a completion with finish_reason {kind!r}", words if said.get("message") else None)


def _message(source: Any, finish_reason: str | None, span: TokenSpan | None, notes: Notes) -> Message:
    if not isinstance(source, dict):
        raise NoAnswer("a choice without a message")
    content = source.get("content")
    reasoning = source.get("reasoning_content") or source.get("reasoning")
    if isinstance(content, list):
        thinking = _joined(content, "thinking")
        content = _joined(content, "text")
        reasoning = reasoning or thinking
    if content is None:
        content = source.get("refusal")
    if content is not None and not isinstance(content, str):
        raise NoAnswer(f"a content of type {type(content).__name__}")
    calls = _tool_calls(source, notes)
    if content is None and calls is None:
        content = ""
    return Message(
        role="assistant",
        content=None if content is None else clean_text(content),
        reasoning=clean_text(reasoning) if isinstance(reasoning, str) and reasoning else None,
        tool_calls=calls,
        finish_reason=finish_reason,
        tokens=span,
    )


def _joined(parts: list[Any], kind: str) -> str:
    """The text of the content parts of one kind; a "thinking" part may hold parts itself."""
    texts = []
    for part in parts:
        if isinstance(part, str) and kind == "text":
            texts.append(part)
        elif isinstance(part, dict) and part.get("type") == kind:
            inner = part.get(kind)
            texts.append(_joined(inner, "text") if isinstance(inner, list) else str(inner or ""))
    return "".join(texts)


def _tool_calls(source: dict[str, Any], notes: Notes) -> tuple[ToolCall, ...] | None:
    raw = source.get("tool_calls")
    if not raw and isinstance(source.get("function_call"), dict):
        raw = [{"function": source["function_call"]}]
    if not isinstance(raw, list) or not raw:
        return None
    calls = []
    for item in raw:
        function = item.get("function") if isinstance(item, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            notes.bad_tool_calls += 1
            continue
        arguments = function.get("arguments")
        if arguments is None or arguments == "":
            arguments = "{}"
        elif not isinstance(arguments, str):
            arguments = to_json(arguments).decode()
        call_id = item.get("id")
        calls.append(
            ToolCall(
                id=call_id if isinstance(call_id, str) and call_id else None,
                function=FunctionCall(name=clean_text(function["name"]), arguments=clean_text(arguments)),
            )
        )
    return tuple(calls) or None


def _prompt_ids(value: Any, notes: Notes) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or ids_fault(value) is not None:
        notes.bad_token_ids += 1
        return None
    return tuple(value)


def _span(choice: dict[str, Any], notes: Notes) -> TokenSpan | None:
    """The sampled ids with their logprobs. What cannot be right is left out, never filled in or converted."""
    logprobs, inline_ids = _logprobs(choice.get("logprobs"))
    ids = choice.get("token_ids")
    if ids is None:
        ids = choice.get("response_token_ids")
    if ids is None:
        ids = inline_ids
    if logprobs is None and ids != []:
        notes.null_logprobs += 1
    if ids is None:
        notes.no_token_ids += 1
        return None
    if not isinstance(ids, list):
        notes.bad_token_ids += 1
        return None
    if logprobs is not None and (len(logprobs) != len(ids) or not _sound(logprobs)):
        notes.bad_logprobs += 1
        logprobs = None
    if logprobs is None and not ids:
        logprobs = []
    try:
        return TokenSpan(ids=tuple(ids), mask=True, logprobs=None if logprobs is None else tuple(logprobs))
    except ValidationError as error:
        if any(problem["loc"][:1] == ("ids",) for problem in error.errors(include_url=False)):
            notes.bad_token_ids += 1
            return None
    notes.bad_logprobs += 1
    return TokenSpan(ids=tuple(ids), mask=True)


def _logprobs(source: Any) -> tuple[list[Any] | None, list[Any] | None]:
    """The logprob of each sampled token, and their ids where they are beside or inside the token texts."""
    if not isinstance(source, dict):
        return None, None
    content = source.get("content")
    if isinstance(content, list):
        try:
            values = [token["logprob"] for token in content]
            if content and "id" in content[0]:
                return values, [token["id"] for token in content]
            texts = [token["token"] for token in content] if content and _is_id(content[0].get("token")) else []
        except (KeyError, TypeError, AttributeError):
            return None, None
        return values, _ids_from_texts(texts)
    token_logprobs = source.get("token_logprobs")
    if not isinstance(token_logprobs, list):
        return None, None
    tokens = source.get("tokens")
    texts = tokens if isinstance(tokens, list) and tokens and _is_id(tokens[0]) else []
    return token_logprobs, _ids_from_texts(texts)


def _is_id(token: Any) -> bool:
    return isinstance(token, str) and token.startswith("token_id:")


def _ids_from_texts(texts: list[Any]) -> list[Any] | None:
    """The numbers in "token_id:123"; a text of another form stays as it is; that is not an id."""
    if not texts:
        return None
    return [int(text[9:]) if _is_id(text) and _DIGITS.fullmatch(text, 9) else text for text in texts]


def _sound(logprobs: list[Any]) -> bool:
    """Can a sampler have them? Two passes in C: this runs for every token. The span's own validation does the rest."""
    try:
        return not logprobs or (min(logprobs) > LEAST_LOGPROB and max(logprobs) < 1e-3)
    except TypeError:
        return False
