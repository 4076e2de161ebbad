"""Two rollouts side by side: where they part, and so their prompt and completions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from atropos_cli.datasets.convert.rendering import Rendering
from atropos_cli.datasets.convert.samples import normal, told_cut
from atropos_cli.datasets.convert.spec import SampleOptions
from atropos_cli.datasets.convert.turns import BadMessage, as_turns, fold_system, plain_text
from atropos_cli.io.records import Message, Row, StoredRollout, text_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Divergence:
    """A shared prompt and the continuation on each side, beginning with an assistant message."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]

    @classmethod
    def alone(cls, rollout: StoredRollout, options: SampleOptions) -> Divergence:
        """One rollout: its prompt and its completion (in `chosen`)."""
        messages, begin = conversation(rollout, options)
        return cls(messages[:begin], messages[begin:], [])


@dataclass(frozen=True, slots=True)
class Prompted:
    """Prompt and completion as text."""

    prompt: str
    completion: str

    @classmethod
    def plain(cls, prompt: Sequence[Message], completion: Sequence[Message]) -> Prompted:
        """The contents as they are: one user message, one reply. Raises BadMessage for anything else."""
        if len(prompt) > 1 or len(completion) != 1 or any(message["role"] != "user" for message in prompt):
            raise BadMessage("needs_template", "several messages are one text only by a template (--tokenizer)")
        if completion[0].get("tool_calls"):
            raise BadMessage("needs_template", "a tool call is text only by a template (--tokenizer)")
        return cls(plain_text(prompt[0]) if prompt else "", plain_text(completion[0]))

    @classmethod
    def rendered(
        cls, rendering: Rendering, prompt: Sequence[Message], completion: Sequence[Message], tools: Any
    ) -> Prompted:
        """As the template writes them. Raises BadMessage, TemplateRefused."""
        replies = [len(prompt) + i for i, message in enumerate(completion) if message["role"] == "assistant"]
        ends = sorted({replies[0], replies[-1]})
        made = rendering.finder(bool(tools)).render(as_turns([*prompt, *completion]), ends, tools)
        if len(made.spans) != len(ends):
            raise BadMessage(
                "prompt_not_prefix", "the prompt of the reply, rendered alone, is not how the conversation begins"
            )
        before = made.text[: made.spans[0][0]]
        own = rendering.tokens.own_text(before) if rendering.tokens is not None else before
        return cls(own, made.text[made.spans[0][0] : made.spans[-1][1]])


def conversation(rollout: StoredRollout, options: SampleOptions) -> tuple[list[Message], int]:
    """(messages up to the last reply, where the completion begins), thinking and system text as asked for."""
    messages = normal(told_cut(rollout), options.thinking_form)
    begin = rollout.prompt_length
    if options.system == "fold" and any(message["role"] in ("system", "developer") for message in messages):
        folded = fold_system(messages)
        begin = max(begin + len(folded) - len(messages), 0)
        messages = folded
    return messages, begin


def diverge(
    chosen: StoredRollout,
    rejected: StoredRollout,
    options: SampleOptions,
    *,
    same_prompt: str = "all",
    turn_only: bool = False,
) -> Divergence:
    """Split two rollouts at the first reply that differs. Raises BadMessage with the reason when there is none.

    Reasons: identical; prompts_differ; prefix (one side ends where the other goes on); environment_differs (what
    differs first is no reply: the same reply got another answer).
    """
    (a, begin), (b, other) = conversation(chosen, options), conversation(rejected, options)
    at = begin
    if same_prompt == "all":
        at = 0
        while at < min(len(a), len(b)) and (a[at] == b[at] or _key(a[at]) == _key(b[at])):
            at += 1
        if at == len(a) == len(b):
            raise BadMessage("identical", "both sides are the same")
        if at in (len(a), len(b)):
            raise BadMessage("prefix", "one side continues the other, so one of them has no answer left")
        if at < min(begin, other):
            raise BadMessage("prompts_differ", f"message {at} of the prompts differs")
        if not _learned(a[at]) or not _learned(b[at]):
            raise BadMessage("environment_differs", f"message {at} differs first, and it is not a reply")
        begin = other = at
    sides = a[begin:], b[other:]
    if turn_only:
        sides = sides[0][:1], sides[1][:1]
    if not sides[0] or not sides[1]:
        raise BadMessage("prefix", "no answer is left on one side")
    return Divergence(a[:begin], *sides)


def same_prompts(rollouts: Sequence[StoredRollout], which: str) -> bool:
    """Do all rollouts answer the same prompt: the same messages, or (which "user") the same ones of the user?"""
    first = rollouts[0].prompt
    return all(rollout.prompt == first for rollout in rollouts) or (
        len({_prompt_key(rollout.prompt, which) for rollout in rollouts}) == 1
    )


def _prompt_key(prompt: Sequence[Message], which: str) -> tuple[Any, ...]:
    return tuple(_key(message) for message in prompt if which == "all" or message["role"] == "user")


class Lazy(Sequence[_T]):
    """A value for each rollout, worked out when it is asked for."""

    def __init__(self, rollouts: Sequence[StoredRollout], value: Callable[[StoredRollout], _T]) -> None:
        self._rollouts = rollouts
        self._value = value
        self._known: dict[int, _T] = {}

    def __len__(self) -> int:
        return len(self._rollouts)

    def __getitem__(self, i: Any) -> Any:
        if i not in self._known:
            self._known[i] = self._value(self._rollouts[i])
        return self._known[i]


def completion_length(rollout: StoredRollout) -> int:
    """Characters that the model wrote: texts and tool calls of all its turns."""
    return sum(_length(message) for message in rollout.completion if message["role"] == "assistant")


def _learned(message: Message) -> bool:
    """Is it a reply of the model, and not what the environment or another player said in its place?"""
    return bool(message["role"] == "assistant" and message.get("weight", 1) != 0)


def _length(message: Message) -> int:
    calls: Sequence[Row] = message.get("tool_calls") or ()
    return len(text_of(message)) + sum(
        len(call["function"]["name"]) + len(str(call["function"].get("arguments") or "")) for call in calls
    )


def _key(message: Message) -> tuple[Any, ...]:
    """A message without ids and bookkeeping: two samples of the same reply have the same key, white space aside."""
    calls: Sequence[Row] = message.get("tool_calls") or ()
    text = text_of(message)
    return (
        message["role"],
        text.strip() if message["role"] == "assistant" else text,
        message.get("reasoning"),
        *((call["function"]["name"], call["function"].get("arguments")) for call in calls),
    )
