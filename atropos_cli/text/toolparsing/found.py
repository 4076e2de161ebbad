"""What a tool-call reader collects, and the walk over the visible parts of a completion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import FunctionCall, ToolCall
from atropos_cli.text.thinking import MARKS, closing_mark, mark_of
from atropos_cli.text.toolparsing.check import check_calls
from atropos_cli.text.toolparsing.fault import CallFault
from atropos_cli.text.toolparsing.lenient_json import Decoded, JsonFault, decode_json

HIDDEN_TAG = rf"(?P<tag>{MARKS}|(?i:</?(?:memory|remember)>))"
"""A mark of a block in which calls do not count; part of every reader's opener."""

_SPACE = re.compile(r"\s*")
_FENCE_OPEN = re.compile(r"```[A-Za-z0-9_]*[ \t]*\r?\n?")


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call: a tool's name and its arguments, decoded."""

    name: str
    arguments: JsonDict

    def as_tool_call(self, call_id: str | None = None) -> ToolCall:
        """The same in the OpenAI shape, with the arguments as JSON text."""
        text = json.dumps(self.arguments, ensure_ascii=False)
        return ToolCall(id=call_id, function=FunctionCall(name=self.name, arguments=text))


@dataclass(frozen=True, slots=True)
class ToolParse:
    """What was found in a completion.

    status: ok (at least one call), none (the completion calls nothing), error (it tries to, and fails).
    error: truncated, invalid_json, too_deep, missing_name, arguments_not_object, not_an_object,
        positional_arguments, non_literal_argument, non_json_argument, duplicate_argument, not_a_call,
        invalid_python, invalid_action, too_long.
    warnings: repairs and oddities, each once, in order of appearance.
    strict_json_ok: the payload was valid JSON unchanged.
    validation_errors: unknown_tool:NAME, missing:ARG, unexpected:ARG, wrong_type:ARG, not_in_enum:ARG;
        empty without `tools`. They say nothing about syntax, and a call that has some is still listed.
    """

    status: Literal["ok", "none", "error"]
    calls: tuple[ParsedCall, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    strict_json_ok: bool = False
    validation_errors: tuple[str, ...] = ()


class Found:
    """What a reader has collected so far.

    rest: visible text outside calls. segment: where the text since the last block begins.
    attempts and cut_off bound the work on text that only looks like JSON. hidden: (start, end) of the memory blocks,
    with their marks.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] | None) -> None:
        self.tools = tools
        self.attempts = 0
        self.cut_off = 0
        self.reset(0)

    def reset(self, pos: int) -> None:
        """Forget everything: it was inside a thought that ended at pos."""
        self.calls: list[ParsedCall] = []
        self.warnings: dict[str, None] = {}
        self.fault: str | None = None
        self.strict = True
        self.segment = pos
        self.rest: list[str] = []
        self.hidden: list[tuple[int, int]] = []
        self.done = False
        self.tentative: Any = None
        self.nameless = False

    def warn(self, *names: str, strict: bool = True) -> None:
        """Note repairs; strict=False where they mean that the payload was not valid JSON."""
        self.warnings.update(dict.fromkeys(names))
        self.strict = self.strict and strict

    def decode(self, text: str, pos: int, *, strict_first: bool = True) -> Decoded:
        decoded = decode_json(text, pos, strict_first=strict_first)
        if decoded.repairs:
            self.warn(*decoded.repairs, strict=set(decoded.repairs) <= {"lone_surrogate"})
        return decoded

    def add(self, value: Any) -> None:
        """Add a decoded payload: a call, or a list of calls. Raises CallFault."""
        if isinstance(value, list) and value:
            self.warn("array_of_calls")
            for item in value:
                self.call(item)
        else:
            self.call(value)

    def call(self, value: Any) -> None:
        """Add one {"name", "arguments"} object. Raises CallFault."""
        if not isinstance(value, Mapping):
            raise CallFault("not_an_object")
        arguments = value.get("arguments")
        if "arguments" not in value and "parameters" in value:
            self.warn("parameters_alias")
            arguments = value["parameters"]
        name = checked_name(value.get("name"))
        if isinstance(arguments, str) and arguments.strip():
            self.warn("arguments_string")
        self.calls.append(ParsedCall(name, self.arguments(arguments)))

    def arguments(self, value: Any) -> JsonDict:
        """Arguments as an object; text is decoded, and nothing at all stands for {}. Raises CallFault, JsonFault."""
        if isinstance(value, str):
            stripped = value.strip()
            if stripped in ("", "null"):
                value = None
            elif not stripped.startswith("{"):
                raise CallFault("arguments_not_object")
            else:
                decoded = self.decode(stripped, 0)
                if decoded.end != len(stripped):
                    raise CallFault("invalid_json")
                value = decoded.value
        if value is None:
            self.warn("missing_arguments")
            return {}
        if not isinstance(value, Mapping):
            raise CallFault("arguments_not_object")
        return dict(value)

    def result(self) -> ToolParse:
        warnings = tuple(self.warnings)
        if self.fault is not None:
            return ToolParse("error", (), warnings, self.fault)
        if not self.calls:
            return ToolParse("none", (), warnings)
        checked = check_calls([(call.name, call.arguments) for call in self.calls], self.tools)
        return ToolParse("ok", tuple(self.calls), warnings, None, self.strict, checked)


def checked_name(name: Any) -> str:
    """The name, if it is text with something in it. Raises CallFault."""
    if not isinstance(name, str) or not name.strip():
        raise CallFault("missing_name")
    return name


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. opener: what may begin a call (HIDDEN_TAG among it). read: take it, return where to continue."""

    opener: re.Pattern[str]
    read: Callable[[str, re.Match[str], Found], int]
    finish: Callable[[Found], None] | None = None


def walk(text: str, reader: Reader, found: Found) -> None:
    """Read every call outside thinking and memory blocks, left to right, each character about once."""
    pos = 0
    unclosed: set[str] = set()
    while (match := reader.opener.search(text, pos)) is not None:
        found.rest.append(text[pos : match.start()])
        pos = match.end()
        if match["tag"] is None:
            if found.fault is None and not found.done:
                try:
                    pos = reader.read(text, match, found)
                except (JsonFault, CallFault) as fault:
                    found.fault = fault.code
            continue
        thought = mark_of(match["tag"])
        if thought is not None:
            if thought[1]:
                found.reset(pos)  # a closing mark alone: all before it was thought
            else:
                over = closing_mark(thought[0], text, pos)
                found.segment = pos = over.end() if over else len(text)  # never closed: all the rest is thought
            continue
        name = match["tag"].strip("</>").lower()
        if match["tag"].startswith("</"):
            continue
        close = None if name in unclosed else re.compile(f"</{name}>", re.IGNORECASE).search(text, pos)
        if close is not None:
            pos = found.segment = close.end()
            found.hidden.append((match.start(), pos))
        else:
            unclosed.add(name)
    found.rest.append(text[pos:])
    if reader.finish is not None and found.fault is None:
        try:
            reader.finish(found)
        except (JsonFault, CallFault) as fault:
            found.fault = fault.code


def skip_space(text: str, pos: int) -> int:
    """The first position from pos on that is not white space."""
    match = _SPACE.match(text, pos)
    return match.end() if match else pos


def enter_fence(text: str, pos: int, found: Found) -> tuple[int, bool]:
    """Step over white space, and into a code fence if one begins there."""
    pos = skip_space(text, pos)
    fence = _FENCE_OPEN.match(text, pos)
    if fence is None:
        return pos, False
    found.warn("code_fence", strict=False)
    return skip_space(text, fence.end()), True


def leave_fence(text: str, pos: int, fenced: bool) -> int:
    """Step over white space, and over the end of the fence that was entered."""
    end = skip_space(text, pos)
    return skip_space(text, end + 3) if fenced and text.startswith("```", end) else end
