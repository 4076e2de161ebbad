"""Rows for SFT: token ids and labels made here, so that what is trained does not depend on a template's abilities.

{"input_ids", "labels"}           taken as they are (what sft-gen --tokenizer writes); masks are not touched
{"messages"}                      rendered by the model's template; every assistant turn is trained, with its end token
{"prompt", "completion"}          texts or messages; the completion is trained, with an end token
{"text"}                          all of it is trained, with an end token

A message with `weight` 0 is not trained. No end token is trained after a reply that was cut off, as its own or its
row's finish reason says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.finish import cut_by, finish_in
from atropos_cli.domain.tokendata import ids_fault, is_binary
from atropos_cli.errors import DataError

IGNORED = -100
_WANTED = "rows need messages, prompt and completion, text, or input_ids and labels (see sft-gen)"


@dataclass
class Demonstrations:
    """Rows ready for the trainer, and what was left out."""

    rows: list[dict[str, list[int]]] = field(default_factory=list)
    too_long: int = 0
    untrained: int = 0
    open_ended: int = 0
    """Rows whose last trained token is no end token: the model does not learn to stop from them."""
    last: set[int] = field(default_factory=set)
    """The last trained tokens of all rows."""


def demonstrations(
    rows: Iterable[JsonDict],
    tokenizer: Any,
    *,
    max_length: int | None,
    vocabulary: int | None = None,
    ends: frozenset[int] = frozenset(),
) -> Demonstrations:
    """Raises DataError for a row of no known shape, and when no row has a trained token.

    vocabulary: ids from there on are refused. ends: tokens at which the model stops, besides the tokenizer's.
    """
    ends = ends | {tokenizer.eos_token_id}
    found = Demonstrations()
    seen = 0
    for number, row in enumerate(rows, start=1):
        seen = number
        try:
            ids, labels = ids_and_labels(row, tokenizer)
            _check_ids(ids, labels, vocabulary)
            if "input_ids" in row:
                _check_prompt(labels)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"row {number} cannot be trained on: {error} ({_keys(row)})", hint=_WANTED) from error
        if max_length is not None and len(ids) > max_length:
            found.too_long += 1
        elif all(label == IGNORED for label in labels):
            found.untrained += 1
        else:
            found.rows.append({"input_ids": ids, "labels": labels})
            last = next(label for label in reversed(labels) if label != IGNORED)
            found.last.add(last)
            found.open_ended += last not in ends
    if not seen:
        raise DataError("the data have no row to train on", hint=_WANTED)
    if not found.rows:
        raise DataError(
            f"none of {seen} rows has a token to train on: {found.untrained} are masked all through, "
            f"{found.too_long} are longer than {max_length} tokens",
            hint="check the masks (sft-gen --help), or raise --max-length",
        )
    return found


def ids_and_labels(row: JsonDict, tokenizer: Any) -> tuple[list[int], list[int]]:
    """One row's ids and labels. Raises ValueError for what cannot be read."""
    if "input_ids" in row:
        return _given(row)
    tools = row.get("tools")
    cut = cut_by(finish_in(row)) is not None
    if "messages" in row:
        return _rendered(_ending(_turns(row["messages"]), cut), 0, tokenizer, tools)
    if "completion" in row:
        if row.get("prompt") is None:
            raise ValueError("it has a completion, but no prompt")
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            return _text(prompt, completion, tokenizer, ends=not cut)
        turns = _turns(prompt)
        replies = _ending(_turns(completion, role="assistant"), cut)
        return _rendered([*turns, *replies], len(turns), tokenizer, tools)
    if "text" in row:
        return _text("", str(row["text"]), tokenizer, ends=not cut)
    raise ValueError("it has none of the known keys")


def _keys(row: JsonDict) -> str:
    return f"its keys: {', '.join(list(row)[:8]) or 'none'}"


def _check_ids(ids: Sequence[int], labels: Sequence[int], vocabulary: int | None) -> None:
    """Raises ValueError for what the embedding has no row for."""
    if vocabulary is None:
        return
    for name, values in (("input_ids", ids), ("labels", [label for label in labels if label != IGNORED])):
        odd = next((value for value in values if not 0 <= value < vocabulary), None)
        if odd is not None:
            raise ValueError(
                f"{name} has {odd}, the model's tokens are 0 to {vocabulary - 1}: another tokenizer's row?"
            )


def _check_prompt(labels: Sequence[int]) -> None:
    """Raises ValueError for stored tokens whose first one is trained."""
    if labels and labels[0] != IGNORED:
        raise ValueError("its first token is trained, which nothing predicts: the tokens of its prompt are missing")


def _given(row: JsonDict) -> tuple[list[int], list[int]]:
    ids: Any = row["input_ids"]
    labels: Any = row.get("labels")
    _expect_list(ids, "input_ids")
    if (fault := ids_fault(ids)) is not None:
        raise ValueError(f"input_ids hold what is no token id: {fault}")
    if labels is None:
        mask: Any = row.get("completion_mask", row.get("assistant_masks"))
        if mask is None:
            raise ValueError("input_ids without labels")
        _expect_list(mask, "the mask")
        if not is_binary(mask):
            raise ValueError("its mask is not made of 0 and 1")
        labels = [token if flag else IGNORED for token, flag in zip(ids, mask, strict=True)]
    _expect_list(labels, "labels")
    if len(ids) != len(labels):
        raise ValueError(f"{len(ids)} input_ids but {len(labels)} labels")
    if (fault := ids_fault([label for label in labels if type(label) is not int or label != IGNORED])) is not None:
        raise ValueError(f"labels hold what is neither a token id nor {IGNORED}: {fault}")
    return ids, labels


def _expect_list(value: Any, name: str) -> None:
    if not isinstance(value, list):
        raise ValueError(f"{name} is no list")


def _turns(value: Any, role: str = "user") -> list[JsonDict]:
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list) or not value:
        raise ValueError("messages are not a list")
    turns: list[JsonDict] = []
    for message in value:
        if not isinstance(message, dict) or "role" not in message:
            raise ValueError("a message has no role")
        content = message.get("content")
        if isinstance(content, list):
            content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        turns.append({**message, "content": content if content is not None else ""})
    return turns


def _ending(turns: list[JsonDict], cut: bool) -> list[JsonDict]:
    """The turns, the last reply marked as cut off where its row says so."""
    place = next((i for i in reversed(range(len(turns))) if turns[i]["role"] == "assistant"), None)
    if cut and place is not None:
        turns[place] = {**turns[place], "finish_reason": "length"}
    return turns


def _text(prompt: str, completion: str, tokenizer: Any, *, ends: bool = True) -> tuple[list[int], list[int]]:
    encoded = tokenizer(prompt + completion, return_offsets_mapping=True)
    ids, labels = [], []
    for token, (begin, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        ids.append(int(token))
        labels.append(int(token) if begin >= len(prompt) and end > begin else IGNORED)
    if ends and ids[-1:] != [tokenizer.eos_token_id]:
        ids.append(tokenizer.eos_token_id)
        labels.append(tokenizer.eos_token_id)
    return ids, labels


def render_dialogue(messages: Sequence[JsonDict], tokenizer: Any, **options: Any) -> str:
    """The text of messages by the model's chat template. Raises ValueError, whatever the template raises."""
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, **options))
    except Exception as error:
        raise ValueError(
            f"the chat template refuses it: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error


def _weight(message: JsonDict) -> bool:
    """Is the message trained? Raises ValueError for a weight that a mask cannot say."""
    weight: Any = message.get("weight", 1)
    if weight not in (0, 1):
        raise ValueError(f"a message has the weight {weight!r}; a mask knows 0 and 1 only")
    return bool(weight)


def is_cut(message: JsonDict) -> bool:
    """Was a reply cut off, so that no end token belongs behind it?"""
    return cut_by(finish_in(message)) is not None


def _end_of_text(message: JsonDict, rendered: str, begin: int) -> int:
    """Where a reply that was cut off ends: with its own words. Raises ValueError where they are not to be found."""
    words = str(message["content"]).strip()
    at = rendered.rfind(words, begin) if words and not message.get("tool_calls") else -1
    if at < 0:
        raise ValueError("a reply was cut off, and it cannot be told where it ends in the rendered text")
    return at + len(words)


def _rendered(messages: Sequence[JsonDict], first: int, tokenizer: Any, tools: Any) -> tuple[list[int], list[int]]:
    """Assistant turns from number `first` on are trained, from after the template's opening to their end token."""

    def render(count: int, *, opening: bool) -> str:
        return render_dialogue(messages[:count], tokenizer, tools=tools, add_generation_prompt=opening)

    if tokenizer.chat_template is None:
        raise ValueError("the model has no chat template; give prompt and completion as text")
    if messages[0]["role"] == "assistant" and first == 0:
        raise ValueError("its first turn is the assistant's, who has nothing to answer; put a user's turn before it")
    whole = render(len(messages), opening=False)
    spans = []
    for number, message in enumerate(messages):
        if message["role"] != "assistant" or number < first or not _weight(message):
            continue
        before, after = render(number, opening=True), render(number + 1, opening=False)
        if not whole.startswith(before) or not whole.startswith(after):
            raise ValueError(
                "the chat template rewrites earlier turns (it drops thoughts, say), so that no mask fits all of them; "
                "make one row for each reply: sft-gen --split-turns"
            )
        if is_cut(message):
            spans.append((len(before), _end_of_text(message, after, len(before))))
            continue
        end = len(after)
        mark = after.rfind(tokenizer.eos_token, len(before)) if tokenizer.eos_token else -1
        if mark >= 0:
            end = mark + len(tokenizer.eos_token)
        spans.append((len(before), end))
    encoded = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
    ids, labels = [], []
    for token, (begin, end) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        trained = end > begin and any(start <= begin and end <= stop for start, stop in spans)
        ids.append(int(token))
        labels.append(int(token) if trained else IGNORED)
    return ids, labels
