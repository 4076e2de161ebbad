"""A conversation with a marker in the place of every text: this separates the template's text from the conversation's.

Each text (content, thinking, names and string arguments of tool calls) is a leaf. The marker stands for the
leaf's core, the text without white space at its ends, so that a template that trims does the same to both.
Thinking tags inside a content stay as they are, because templates look for them.

Rendering the skeleton gives the template's own text between the markers. Whatever a model or a user wrote,
role markers of the template included, is not in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.datasets.convert.template import Turn
from atropos_cli.text.thinking import MARKS, may_think, split_thinking

_TAGS = re.compile(rf"({MARKS}|(?i:</?(?:tool_call|tool_response)>))")
_MARKER = re.compile(r"XqLf(\d+)fLqX")
MARK = "XqLf"
"""How every marker begins."""


@dataclass(slots=True)
class Leaf:
    """One text of the conversation. kind: "text", "thinking" or "argument" (may be written as JSON)."""

    owner: int
    kind: str
    core: str

    def forms(self) -> Iterator[str]:
        """How a template may write the core."""
        yield self.core
        if self.kind == "argument":
            yield json.dumps(self.core, ensure_ascii=False)[1:-1]
            yield json.dumps(self.core)[1:-1]


@dataclass(slots=True)
class Skeleton:
    """turns: the conversation with markers. heads, tails: a content's text before its first and after its last core."""

    turns: list[Turn] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)

    @property
    def plain(self) -> bool:
        """True if only roles and the number of texts distinguish this conversation: no edges, no calls."""
        if any(self.heads) or any(self.tails) or any(len(turn) > 2 for turn in self.turns):
            return False
        return len(self.leaves) == sum(bool(turn["content"]) for turn in self.turns)

    def shape(self) -> tuple[tuple[str, bool], ...]:
        """What all plain conversations with the same skeleton have in common."""
        return tuple([(turn["role"], bool(turn["content"])) for turn in self.turns])

    def kind(self, i: int) -> tuple[Any, ...]:
        """What can make a template treat message i differently, its texts aside."""
        turn = self.turns[i]
        return (
            turn["role"],
            bool(turn["content"]),
            "reasoning_content" in turn,
            "tool_calls" in turn,
            self.heads[i],
            self.tails[i],
        )


def make_skeleton(turns: Sequence[Turn]) -> Skeleton:
    """The skeleton of a conversation; the turns are not changed."""
    made = Skeleton()
    for i, turn in enumerate(turns):
        content, head, tail = _content(made, i, turn)
        bare = {**turn, "content": content}
        if "reasoning_content" in turn:
            bare["reasoning_content"] = bare["thinking"] = _marked(made, i, "thinking", turn["reasoning_content"])
        if "tool_calls" in turn:
            bare["tool_calls"] = [_call(made, i, call) for call in turn["tool_calls"]]
        made.turns.append(bare)
        made.heads.append(head)
        made.tails.append(tail)
    return made


def split_markers(text: str) -> tuple[list[str], list[int]]:
    """(the template's own pieces, the leaves between them in order): one piece more than leaves."""
    parts = _MARKER.split(text)
    return parts[::2], [int(number) for number in parts[1::2]]


def _content(made: Skeleton, owner: int, turn: Turn) -> tuple[str, str, str]:
    """(content with markers, text before the first, text after the last)."""
    text = turn["content"]
    if not may_think(text):  # the usual case, and worth its own lines: no tags
        core = text.strip()
        if not core:
            return text, text, text
        made.leaves.append(Leaf(owner, "text", core))
        marker = f"XqLf{len(made.leaves) - 1}fLqX"
        if len(core) == len(text):
            return marker, "", ""
        at = text.find(core)
        head, tail = text[:at], text[at + len(core) :]
        return f"{head}{marker}{tail}", head, tail
    thought = 0
    if turn["role"] == "assistant":
        inside, answer = split_thinking(text)
        thought = len(inside) if answer is not None else 0
    out, at = [], 0
    for piece in _TAGS.split(text):
        tag = _TAGS.fullmatch(piece)
        out.append(piece if tag else _marked(made, owner, "thinking" if at < thought else "text", piece))
        at += len(piece)
    whole = "".join(out)
    pieces, found = split_markers(whole)
    return (whole, pieces[0], pieces[-1]) if found else (whole, whole, whole)


def _marked(made: Skeleton, owner: int, kind: str, text: str) -> str:
    core = text.strip()
    if not core:
        return text
    made.leaves.append(Leaf(owner, kind, core))
    at = text.find(core)
    return f"{text[:at]}XqLf{len(made.leaves) - 1}fLqX{text[at + len(core) :]}"


def _call(made: Skeleton, owner: int, call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    name = _marked(made, owner, "argument", function["name"])
    return {**call, "function": {**function, "name": name, "arguments": _value(made, owner, function["arguments"])}}


def _value(made: Skeleton, owner: int, value: Any) -> Any:
    if isinstance(value, str):
        return _marked(made, owner, "argument", value)
    if isinstance(value, list):
        return [_value(made, owner, item) for item in value]
    if isinstance(value, dict):
        return {_marked(made, owner, "argument", key): _value(made, owner, item) for key, item in value.items()}
    return value
