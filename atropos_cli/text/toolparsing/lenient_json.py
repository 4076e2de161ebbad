"""Decode one JSON object or array out of a model's text, with a short list of reported repairs.

A strict decoder is tried first. The lenient one accepts what models commonly write and names each
repair: trailing commas, Python literals, raw control characters, half surrogate pairs. It never
completes JSON that is cut off, has no recursion, and takes time linear in what it reads.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from atropos_cli.domain.base import clean_text

MAX_DEPTH = 128
"""Nesting above this is an error: deeper values cannot be written again by a recursive encoder."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NUMBER_TAIL = re.compile(r"\.|[eE][-+]?")
_WORD = re.compile(r"[A-Za-z_]+")
_CHUNK = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_HEX = re.compile(r"[0-9a-fA-F]+")
_JSON_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PYTHON_ESCAPES = {"'": "'", "a": "\a", "v": "\v", "\n": ""}
_JSON_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


class JsonFault(Exception):
    """The text holds no decodable value at that place.

    code: truncated (the text ends inside the value), invalid_json or too_deep. pos: where decoding
    stopped. keys: the top-level keys read so far.
    """

    def __init__(self, code: str, pos: int, keys: tuple[str, ...] = ()) -> None:
        super().__init__(code)
        self.code = code
        self.pos = pos
        self.keys = keys


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value, where it ends in the text, and the repairs that were needed (none: it is strict JSON)."""

    value: Any
    end: int
    repairs: tuple[str, ...] = ()


def decode_json(text: str, start: int = 0, *, strict_first: bool = True) -> Decoded:
    """Decode the object or array that begins at text[start]. Raises JsonFault.

    strict_first=False goes straight to the lenient decoder; it costs less than a failing strict one,
    whose error looks for its line number from the start of the text.
    """
    if strict_first:
        try:
            value, end = _STRICT.raw_decode(text, start)
        except (ValueError, RecursionError):
            pass
        else:
            if _plain(text, start, end, value):
                return Decoded(value, end)
    return _Reader(text, start).read()


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number that overflows is not JSON")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRICT = json.JSONDecoder(parse_float=_finite, parse_constant=_no_constant)


def _plain(text: str, start: int, end: int, value: Any) -> bool:
    """True when a strictly decoded value is neither too deep nor holds half a surrogate pair."""
    if text.count("{", start, end) + text.count("[", start, end) > MAX_DEPTH:
        return False  # perhaps; the iterative decoder counts exactly
    if text.find("\\u", start, end) < 0:
        return True
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _Reader:
    """The lenient decoder: a stack of open containers instead of recursion."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.pos = start
        self.repairs: dict[str, None] = {}
        self.stack: list[Any] = []
        self.keys: list[str] = []

    def fail(self, code: str, pos: int | None = None) -> NoReturn:
        top = self.stack[0] if self.stack and isinstance(self.stack[0], dict) else {}
        keys = tuple(top) + tuple(self.keys[:1])
        raise JsonFault(code, self.pos if pos is None else pos, keys)

    def peek(self) -> str:
        """The next character that is not white space. The end of the text is a truncation."""
        match = _SPACE.match(self.text, self.pos)
        self.pos = match.end() if match else self.pos
        if self.pos >= len(self.text):
            self.fail("truncated")
        return self.text[self.pos]

    def read(self) -> Decoded:
        if self.peek() not in "{[":
            self.fail("invalid_json")
        value = self.value()
        while self.stack:
            value = self.member()
        return Decoded(value, self.pos, tuple(self.repairs))

    def member(self) -> Any:
        """One step inside the innermost container: a member, or its end."""
        container = self.stack[-1]
        closing = "}" if isinstance(container, dict) else "]"
        char = self.peek()
        if container and char not in (closing, ","):
            self.fail("invalid_json")
        if char == ",":
            if not container:
                self.fail("invalid_json")
            self.pos += 1
            char = self.peek()
            if char == closing:
                self.repairs["trailing_comma"] = None
        if char == closing:
            return self.close()
        if isinstance(container, dict):
            if char not in "\"'":
                self.fail("invalid_json")
            self.keys.append(self.string())
            if self.peek() != ":":
                self.fail("invalid_json")
            self.pos += 1
            self.peek()
        return self.value()

    def value(self) -> Any:
        """Read a scalar into the open container, or open a new container."""
        char = self.text[self.pos]
        if char in "{[":
            if len(self.stack) >= MAX_DEPTH:
                self.fail("too_deep")
            self.pos += 1
            self.stack.append({} if char == "{" else [])
            return None
        if char in "\"'":
            return self.add(self.string())
        if char == "-" or char.isdigit():
            return self.add(self.number())
        return self.add(self.word())

    def close(self) -> Any:
        self.pos += 1
        container = self.stack.pop()
        return self.add(container) if self.stack else container

    def add(self, value: Any) -> Any:
        container = self.stack[-1]
        if isinstance(container, dict):
            container[self.keys.pop()] = value
        else:
            container.append(value)
        return value

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.pos)
        if match is None:
            self.fail("truncated" if self.pos + 1 >= len(self.text) else "invalid_json")
        try:
            value = _finite(match[0]) if match[1] or match[2] else int(match[0])
        except ValueError:
            self.fail("invalid_json")
        self.pos = match.end()
        if _NUMBER_TAIL.fullmatch(self.text, self.pos):
            self.fail("truncated", len(self.text))
        return value

    def word(self) -> bool | None:
        match = _WORD.match(self.text, self.pos)
        word = match[0] if match else ""
        if word in _JSON_WORDS:
            self.pos += len(word)
            return _JSON_WORDS[word]
        if word in _PYTHON_WORDS:
            self.repairs["python_literal"] = None
            self.pos += len(word)
            return _PYTHON_WORDS[word]
        if word and self.pos + len(word) == len(self.text):
            known = (*_JSON_WORDS, *_PYTHON_WORDS)
            self.fail("truncated" if any(name.startswith(word) for name in known) else "invalid_json")
        self.fail("invalid_json")

    def string(self) -> str:
        quote = self.text[self.pos]
        python = quote == "'"
        if python:
            self.repairs["python_literal"] = None
        chunk = _CHUNK[quote]
        parts: list[str] = []
        self.pos += 1
        while True:
            match = chunk.match(self.text, self.pos)
            if match is None or match.end() >= len(self.text):
                self.fail("truncated", len(self.text))
            parts.append(match[0])
            self.pos = match.end()
            char = self.text[self.pos]
            if char == quote:
                self.pos += 1
                break
            if char == "\\":
                parts.append(self.escape(python))
            else:
                self.repairs["control_char"] = None
                parts.append(char)
                self.pos += 1
        joined = "".join(parts)
        cleaned = clean_text(joined)
        if "\ufffd" in cleaned and "\ufffd" not in joined:
            self.repairs["lone_surrogate"] = None
        return cleaned

    def escape(self, python: bool) -> str:
        if self.pos + 1 >= len(self.text):
            self.fail("truncated", len(self.text))
        char = self.text[self.pos + 1]
        if char == "u":
            return self.code_point(4)
        if char in _JSON_ESCAPES and not (python and char == "/"):
            self.pos += 2
            return _JSON_ESCAPES[char]
        if char in _PYTHON_ESCAPES:
            self.repairs["python_literal"] = None
            self.pos += 2
            return _PYTHON_ESCAPES[char]
        if char in "xU":
            self.repairs["python_literal"] = None
            return self.code_point(2 if char == "x" else 8)
        if python and not char.isdigit() and char != "N":
            self.pos += 2
            return "\\" + char  # as Python reads an escape that it does not know
        self.fail("invalid_json")

    def code_point(self, width: int) -> str:
        begin = self.pos + 2
        digits = self.text[begin : begin + width]
        match = _HEX.match(digits)
        found = match.end() if match else 0
        if found < width:
            self.fail("truncated" if begin + found >= len(self.text) else "invalid_json")
        code = int(digits, 16)
        if code > 0x10FFFF:
            self.fail("invalid_json")
        self.pos = begin + width
        return chr(code)
