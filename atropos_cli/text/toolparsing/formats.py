"""Readers of the tool-call formats: hermes, json, openai, python, react."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from atropos_cli.text.toolparsing.fault import CallFault
from atropos_cli.text.toolparsing.found import (
    HIDDEN_TAG,
    Found,
    ParsedCall,
    Reader,
    checked_name,
    enter_fence,
    leave_fence,
    skip_space,
)
from atropos_cli.text.toolparsing.lenient_json import Decoded, JsonFault
from atropos_cli.text.toolparsing.pycalls import python_calls

OPEN_TAG = "<tool_call>"
_CLOSE_TAG = "</tool_call>"
_EITHER_TAG = re.compile(r"</?tool_call>")
_BRACE_OR_TAG = re.compile(r"[\[{]|</?tool_call>")
_FENCE = re.compile(r"```[A-Za-z0-9_]*")
_FENCE_END = re.compile(r"^[ \t]*```|```[ \t]*\r?$", re.MULTILINE)
_ACTION_NAME = re.compile(r"([A-Za-z_][\w.\-]*)[ \t]*\r?$", re.MULTILINE)
_ACTION_INPUT = re.compile(r"\s*^[ \t]*Action Input:[ \t]*", re.MULTILINE)
_LINE = re.compile(r"[^\n]*")
_MAX_CUT_OFF = 8  # braces that run to the end of the text without closing
_MAX_STRICT = 32  # failing strict attempts: each costs a search for its line number


def _hermes(text: str, match: re.Match[str], found: Found) -> int:
    if match.group() == _CLOSE_TAG:
        return _hermes_close_only(text, match, found)
    pos, fenced = enter_fence(text, match.end(), found)
    if pos >= len(text):
        raise CallFault("truncated")
    if text[pos] not in "{[":
        brace = _BRACE_OR_TAG.search(text, pos)
        if brace is None or len(brace.group()) > 1:
            raise CallFault("invalid_json")
        found.warn("leading_text", strict=False)
        pos = brace.start()
    pos = _hermes_objects(text, pos, fenced, found)
    if text.startswith(_CLOSE_TAG, pos):
        pos += len(_CLOSE_TAG)
    else:
        following = _EITHER_TAG.search(text, pos)
        if following is not None and following.group() == _CLOSE_TAG:
            found.warn("trailing_text", strict=False)
            pos = following.end()
        else:
            found.warn("missing_close_tag")
    found.segment = pos
    return pos


def _hermes_objects(text: str, pos: int, fenced: bool, found: Found) -> int:
    """Read the objects of one tag, usually one."""
    first = True
    while pos < len(text) and text[pos] in "{[":
        if not first:
            found.warn("multiple_objects", strict=False)
        first = False
        decoded = found.decode(text, pos)
        found.add(decoded.value)
        pos = leave_fence(text, decoded.end, fenced)
        if text.startswith(",", pos):
            following = skip_space(text, pos + 1)
            pos = following if text.startswith("{", following) else pos
    return pos


def _hermes_close_only(text: str, match: re.Match[str], found: Found) -> int:
    """A closing tag whose opening one was part of the prompt: the text before it may be the call."""
    begin = skip_space(text, found.segment)
    found.segment = match.end()
    fence = _FENCE.match(text, begin)
    if text[skip_space(text, fence.end() if fence else begin)] not in "{[":
        return match.end()  # a closing tag in prose
    start, fenced = enter_fence(text, begin, found)
    end = _hermes_objects(text, start, fenced, found)
    if not text.startswith(_CLOSE_TAG, end):
        raise CallFault("invalid_json")
    found.warn("missing_open_tag")
    found.segment = max(match.end(), end + len(_CLOSE_TAG))
    return found.segment


def _json(text: str, match: re.Match[str], found: Found) -> int:
    """An object anywhere in the text counts if it looks like a call; other objects are prose."""
    start = match.start()
    found.attempts += 1
    before, strict = dict(found.warnings), found.strict
    try:
        decoded = found.decode(text, start, strict_first=found.attempts <= _MAX_STRICT)
    except JsonFault as fault:
        return _json_fault(text, start, fault, found)
    if not _json_calls(decoded, found):
        found.warnings, found.strict = before, strict
        found.rest.append(text[start : decoded.end])
    return decoded.end


def _json_calls(decoded: Decoded, found: Found) -> bool:
    value = decoded.value
    if isinstance(value, list):
        if not value or not all(_is_call(item) for item in value):
            return False
    elif not _is_call(value):
        if isinstance(value, dict) and set(value) == {"name"} and found.tentative is None:
            found.tentative = value
            return True
        found.nameless = found.nameless or (isinstance(value, dict) and "arguments" in value)
        return False
    if found.calls:
        found.warn("multiple_objects", strict=False)
    found.add(value)
    return True


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and "name" in value and ("arguments" in value or "parameters" in value)


def _json_fault(text: str, start: int, fault: JsonFault, found: Found) -> int:
    """Broken JSON is an error if it was a call; otherwise continue behind it."""
    keys = set(fault.keys)
    if fault.code == "truncated":
        found.cut_off += 1
        if keys & {"name", "arguments", "parameters"}:
            raise fault
        found.done = found.cut_off >= _MAX_CUT_OFF
        end = start + 1
    else:
        if "name" in keys and keys & {"arguments", "parameters"}:
            raise fault
        end = max(fault.pos, start + 1)  # what is inside fails at the same place, or is part of the broken object
    found.rest.append(text[start:end])
    return end


def _json_finish(found: Found) -> None:
    bare, fences = _FENCE.subn("", "".join(found.rest))
    prose = bool(bare.strip())
    if found.tentative is not None:
        if found.calls:
            prose = True  # {"name": ...} beside real calls is a mere object
        elif not prose:
            found.call(found.tentative)
    if not found.calls:
        if found.nameless:
            raise CallFault("missing_name")
        found.warnings.clear()
        return
    if fences:
        found.warn("code_fence", strict=False)
    if prose:
        found.warn("surrounding_text", strict=False)


def _python(text: str, match: re.Match[str], found: Found) -> int:
    found.strict = False
    close = _FENCE_END.search(text, match.end())
    code = text[match.end() : close.start() if close else len(text)]
    calls = python_calls(code, found.tools)
    if close is None:
        found.warn("unclosed_fence")
    for call in calls:
        if call.mapped:
            found.warn("positional_arguments")
        found.calls.append(ParsedCall(call.name, call.arguments))
    return close.end() if close else len(text)


def _react(text: str, match: re.Match[str], found: Found) -> int:
    found.done = True
    if match["label"] == "Observation":
        return match.end()  # an invented observation: what follows did not happen
    pos, fenced = enter_fence(text, match.end(), found)
    if pos >= len(text):
        raise CallFault("truncated")
    if text[pos] in "{[":
        decoded = found.decode(text, pos)
        found.add(decoded.value)
        pos = leave_fence(text, decoded.end, fenced)
    else:
        pos = _react_named(text, pos, found)
    if skip_space(text, pos) < len(text):
        found.warn("text_after_action")
    return pos


def _react_named(text: str, pos: int, found: Found) -> int:
    """An action's name on its line, and JSON after "Action Input:"."""
    name = _ACTION_NAME.match(text, pos)
    if name is None:
        raise CallFault("invalid_action")
    pos = name.end()
    arguments: Any = None
    given = _ACTION_INPUT.match(text, pos)
    if given is not None:
        pos, fenced = given.end(), False
        begin = skip_space(text, pos)
        if begin >= len(text):
            raise CallFault("truncated")
        if text[begin] in "{`":
            begin, fenced = enter_fence(text, begin, found)
            decoded = found.decode(text, begin)
            arguments, pos = decoded.value, leave_fence(text, decoded.end, fenced)
        else:
            line = _LINE.match(text, pos)
            words = line[0] if line else ""
            if words.strip().lower() not in ("", "none", "null"):
                raise CallFault("arguments_not_object")
            pos += len(words)
    found.calls.append(ParsedCall(name[1], found.arguments(arguments)))
    return pos


def read_openai(message: str | Mapping[str, Any], found: Found) -> str:
    """Read a message's `tool_calls`; returns its content, for a fallback format."""
    try:
        decoded = _openai_message(message, found)
        calls = decoded.get("tool_calls") or ()
        if not isinstance(calls, list | tuple):
            raise CallFault("not_an_object")
        for entry in calls:
            _openai_call(entry, found)
    except (JsonFault, CallFault) as fault:
        found.fault = fault.code
        return ""
    content = decoded.get("content")
    if isinstance(content, list | tuple):
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


_WRITTEN = re.compile(r"(?:.*</think(?:ing)?>)?\s*(?:```(?:json)?\s*)?(?=\{)", re.DOTALL)


def read_written_message(text: str, found: Found) -> None:
    """Calls of a message that the model wrote as text: {"tool_calls": [...]}, alone in the reply."""
    match = _WRITTEN.match(text)
    if match is None:
        return
    try:
        decoded = found.decode(text, match.end())
        value = decoded.value
        calls = value.get("tool_calls") if isinstance(value, Mapping) else None
        if not isinstance(calls, list) or text[decoded.end :].strip().strip("`"):
            return
        for entry in calls:
            flat = isinstance(entry, Mapping) and "function" not in entry
            _openai_call({"function": entry} if flat else entry, found)
    except (JsonFault, CallFault) as fault:
        found.fault = fault.code


def _openai_message(message: str | Mapping[str, Any], found: Found) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return message
    text = message.strip()
    if not text.startswith("{"):
        return {"content": message}  # a plain reply, not a message object
    decoded = found.decode(text, 0)
    if decoded.end != len(text):
        raise CallFault("invalid_json")
    value: Mapping[str, Any] = decoded.value
    return value


def _openai_call(entry: Any, found: Found) -> None:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping):
        raise CallFault("not_an_object")
    name = checked_name(function.get("name"))
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        found.warn("arguments_object")
    found.calls.append(ParsedCall(name, found.arguments(arguments)))


READERS: dict[str, Reader] = {
    "hermes": Reader(re.compile(rf"{HIDDEN_TAG}|{OPEN_TAG}|{_CLOSE_TAG}"), _hermes),
    "json": Reader(re.compile(rf"{HIDDEN_TAG}|\{{(?=\s*[\"'}}])|\[(?=\s*\{{)"), _json, _json_finish),
    "python": Reader(re.compile(rf"{HIDDEN_TAG}|^[ \t]*```[ \t]*(?:python|py|tool_code)\b", re.MULTILINE), _python),
    "react": Reader(re.compile(rf"{HIDDEN_TAG}|^[ \t]*(?P<label>Action|Observation):", re.MULTILINE), _react),
}
