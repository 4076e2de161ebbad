"""Records: one stored group of rollouts of one task, whatever format it was stored in.

A Record is read from a line of a file (or several rows joined, see `grouping`) and keeps the source
object, so that a filter can write the same format back with some rollouts left out. Plain classes
and dicts instead of pydantic models: a file of gigabytes goes through these at 0.1 ms a group.

Messages have the OpenAI shape: role (system, developer, user, assistant, tool), content (text, parts
or None), and where there is one: reasoning (text), tool_calls [{id, type, function: {name, arguments}}]
with `arguments` as JSON text, tool_call_id, name, finish_reason, weight (a number: 0 is not trained
on). They may be the source's own objects: copy before changing one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from atropos_cli.domain.finish import cut_by
from atropos_cli.io.jsonvalue import dump

Message = dict[str, Any]
Row = dict[str, Any]


_WHOLE = frozenset({None, "done", "stop", "tool_calls"})


class TokenSeq(NamedTuple):
    """One training sequence. mask True means trained on; logprobs is 0.0 where mask is False."""

    ids: list[int]
    mask: list[bool]
    logprobs: list[float] | None


def no_tokens(rollout: StoredRollout) -> tuple[TokenSeq, ...]:
    """For formats that hold no tokens."""
    return ()


@dataclass(slots=True)
class StoredRollout:
    """One rollout of a record.

    score: finite, or None when there is none (never scored, failed, or a number that is not finite).
    finish_reason: of the last completion (domain.finish). stop_reason: of the whole rollout.
    failure: {stage, type, message} of a failed rollout. label: "chosen" or "rejected" in preference data.
    prompt_length: how many leading messages are the prompt. rewards: values by name where stored.
    raw: the rollout's own source object; the whole row in formats without one.
    index: its place in the record (in `raw` lists of a group too).
    """

    messages: list[Message]
    score: float | None
    raw: Row
    index: int = 0
    prompt_length: int = 0
    finish_reason: str | None = None
    stop_reason: str | None = None
    failure: Row | None = None
    label: str | None = None
    rewards: dict[str, float] = field(default_factory=dict)
    read_tokens: Callable[[StoredRollout], tuple[TokenSeq, ...]] = field(default=no_tokens, repr=False)
    _sequences: tuple[TokenSeq, ...] | None = field(default=None, repr=False)

    @property
    def sequences(self) -> tuple[TokenSeq, ...]:
        """Training sequences from the stored token ids; empty when the format or the rollout has none."""
        if self._sequences is None:
            self._sequences = self.read_tokens(self)
        return self._sequences

    @property
    def tokens(self) -> list[int] | None:
        """The ids of the only sequence; None when there is none or more than one (see `sequences`)."""
        return self.sequences[0].ids if len(self.sequences) == 1 else None

    @property
    def mask(self) -> list[bool] | None:
        return self.sequences[0].mask if len(self.sequences) == 1 else None

    @property
    def logprobs(self) -> list[float] | None:
        return self.sequences[0].logprobs if len(self.sequences) == 1 else None

    @property
    def billed_tokens(self) -> int | None:
        """Sampled tokens by the server's count, None where none is stored that can be one."""
        usage = self.raw.get("usage")
        told = usage.get("completion_tokens") if isinstance(usage, dict) else None
        return told if type(told) is int and 0 <= told < 1 << 53 else None

    @property
    def completion_tokens(self) -> int | None:
        """Sampled tokens: the server's count where stored, else the trained tokens, else None."""
        if (told := self.billed_tokens) is not None:
            return told
        if not self.sequences:
            return None
        return sum(sum(sequence.mask) for sequence in self.sequences)

    @property
    def prompt(self) -> list[Message]:
        return self.messages[: self.prompt_length]

    @property
    def completion(self) -> list[Message]:
        """What came after the prompt: assistant messages, and tool or user messages between them."""
        return self.messages[self.prompt_length :]

    @property
    def reply(self) -> Message | None:
        """The last assistant message of the completion."""
        for i in range(len(self.messages) - 1, self.prompt_length - 1, -1):
            if self.messages[i]["role"] == "assistant":
                return self.messages[i]
        return None

    @property
    def text(self) -> str:
        """The content of the last assistant message of the completion; "" when there is none."""
        reply = self.reply
        return text_of(reply) if reply is not None else ""

    @property
    def completion_text(self) -> str:
        """The content of all assistant messages of the completion, joined by a blank line."""
        texts = (text_of(message) for message in self.completion if message["role"] == "assistant")
        return "\n\n".join(text for text in texts if text)

    @property
    def truncated(self) -> bool:
        """Was it cut off (by length, by a filter, by a step limit) rather than ended?"""
        return self.cut is not None

    @property
    def cut(self) -> str | None:
        """What cut it off (see domain.finish), "marked" where the row says no more than that; None when it ended."""
        if self.finish_reason in _WHOLE and self.stop_reason in _WHOLE:  # the usual case
            return "marked" if self.raw.get("truncated") is True else None
        found = cut_by(self.stop_reason) or cut_by(self.finish_reason)
        return found or ("marked" if self.raw.get("truncated") is True else None)

    @property
    def reply_cut(self) -> str | None:
        """What cut its last reply off in the middle; None where the text itself is whole, as at a step limit."""
        found = cut_by(self.finish_reason)
        if found is None and self.stop_reason not in ("step_limit", "context_length"):
            found = self.cut  # type: ignore[assignment]
        return found


@dataclass(slots=True)
class Record:
    """A group of rollouts of one task.

    id: the group's or row's own id, else "file:line". task_id, env, task_name: None when not stored.
    raw: the source object. source, line: where it came from (line counts rows in formats without lines).
    strict: may the source line be copied into an output as it is? line_bytes: that line.
    non_finite: places in the scores that hold NaN or Infinity.
    cut: writes the same format with some rollouts kept; use `to_raw`.
    """

    id: str
    raw: Row
    format: str
    rollouts: list[StoredRollout] = field(default_factory=list)
    task_id: str | None = None
    env: str | None = None
    task_name: str | None = None
    source: str = ""
    line: int = 0
    model: str | None = None
    seed: int | None = None
    episode_id: str | None = None
    turn: int | None = None
    answer: Any = None
    info: Row = field(default_factory=dict)
    tools: list[Row] | None = None
    prompt_messages: list[Message] | None = None
    non_finite: list[int] = field(default_factory=list)
    line_bytes: bytes | None = field(default=None, repr=False)
    cut: Callable[[Record, Sequence[StoredRollout]], list[Row]] = field(
        default=lambda record, kept: [record.raw], repr=False
    )
    _task_key: str | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """file:line, for messages."""
        return f"{self.source}:{self.line}"

    @property
    def scores(self) -> list[float | None]:
        return [rollout.score for rollout in self.rollouts]

    @property
    def prompt(self) -> list[Message]:
        """The task's messages where stored, else the prompt of the first rollout."""
        if self.prompt_messages is not None:
            return self.prompt_messages
        return self.rollouts[0].prompt if self.rollouts else []

    @property
    def task_key(self) -> str:
        """What counts as the same task: env and task id, else the text of the prompt (hashed), else the record's id."""
        if self._task_key is None:
            self._task_key = self._make_task_key()
        return self._task_key

    def _make_task_key(self) -> str:
        if self.task_id is not None:
            return f"{self.env or ''}/{self.task_id}"
        prompt = self.prompt
        if not prompt:
            return self.id
        text = "\x00".join(f"{message['role']}\x01{text_of(message)}" for message in prompt)
        return f"{self.env or ''}/#" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]

    def to_raw(self, kept: Sequence[StoredRollout] | None = None) -> list[Row]:
        """The rows of the source format that hold these rollouts (all when None). The source is not changed."""
        if kept is None or len(kept) == len(self.rollouts):
            return self.cut(self, self.rollouts)
        return self.cut(self, kept) if kept else []

    def to_lines(self, kept: Sequence[StoredRollout] | None = None) -> list[bytes]:
        """The same as strict JSON lines, without newlines; the source line itself where nothing changed."""
        if self.line_bytes is not None and (kept is None or len(kept) == len(self.rollouts)):
            return [self.line_bytes]
        return [dump(row) for row in self.to_raw(kept)]


def text_of(message: Message) -> str:
    """The text of a message's content: parts joined by newlines, "" for None."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(
        str(part.get("text", "")) for part in content if isinstance(part, dict) and part.get("type") == "text"
    )
