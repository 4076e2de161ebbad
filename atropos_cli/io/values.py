"""The JSON values in a byte stream: lines, an array over the whole file, or one object over many lines."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from atropos_cli.io.jsonvalue import NotJson, clean_tree, parse

_PEEK = 1 << 16
_BOM = b"\xef\xbb\xbf"
_SPACE = " \t\r\n"


@dataclass(slots=True)
class Item:
    """One value of a stream, or what stands in its place.

    number: line, or array element, from 1. line: the bytes to copy when nothing changes (None when they may not
    be copied). problem: why there is no value. tail: True for a problem at the end of the data, which a killed
    writer leaves. early: compressed data ended before its time.
    """

    number: int
    value: Any = None
    line: bytes | None = None
    problem: str | None = None
    tail: bool = False
    early: bool = False
    text: bytes = b""


def read_values(file: IO[bytes], before: int = 0) -> Iterator[Item]:
    """The values of a stream in order. Nothing is raised for bad data: it comes as items with a problem.

    before: the stream is a piece of a file of lines, with this number of lines before it.
    """
    if before:
        for item in _lines(file):
            item.number += before
            yield item
        return
    compressed: Any = getattr(file, "raw", None)
    count = 0
    for item in _read(file):
        if item.tail and getattr(compressed, "problem", None):
            break  # half a line before the cut
        count = item.number
        yield item
    problem = getattr(compressed, "problem", None)
    if problem and compressed.torn:
        yield Item(count + 1, problem="the last compressed frame is cut", tail=True)
    elif problem:
        yield Item(count + 1, problem=problem, early=True)


def _read(file: IO[bytes]) -> Iterator[Item]:
    head = file.read(_PEEK)
    bom = len(_BOM) if head.startswith(_BOM) else 0
    if file.seekable():
        file.seek(bom)
    else:
        file = io.BufferedReader(_Rest(head[bom:], file), _PEEK)
    yield from _elements(file) if _spans_lines(head[bom:]) else _lines(file)


def _spans_lines(head: bytes) -> bool:
    """Does the stream begin with an array or an object that goes on over several lines, instead of one value a line?"""
    text = head.lstrip()
    first, newline, rest = text.partition(b"\n")
    if text[:1] not in (b"[", b"{"):
        return False
    try:
        parse(first)
    except NotJson as error:
        if text[:1] == b"[":
            return True
        # A string cannot span lines, so a line that ends inside one is torn, not pretty-printed.
        reason = str(error)
        return bool(newline) and "EOF while parsing" in reason and "string" not in reason
    return text[:1] == b"[" and not rest.strip()


class _Rest(io.RawIOBase):
    """What was read ahead of a stream that cannot seek, and then the stream."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head = head
        # read1 hands over what is there, so that a live pipe is not waited for.
        self._more = getattr(file, "read1", file.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._more(len(buffer))
        self._head = self._head[len(data) :]
        buffer[: len(data)] = data
        return len(data)


def _lines(file: IO[bytes]) -> Iterator[Item]:
    for number, line in enumerate(file, start=1):
        if (item := _line(line, number)) is not None:
            yield item


def _line(line: bytes, number: int) -> Item | None:
    text = line.strip(b" \t\r\n")
    if not text:
        return None
    try:
        value, strict = parse(text)
    except NotJson as error:
        return Item(number, problem=str(error), tail=not line.endswith(b"\n"), text=text)
    return Item(number, value, text if strict else None)


def _elements(file: IO[bytes]) -> Iterator[Item]:
    """The elements of an array, or the objects of a stream that does not keep to lines, one at a time."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="strict")
    scan = json.JSONDecoder().raw_decode
    number = 0
    array: bool | None = None
    step = _PEEK
    try:
        buffer = ""
        position = 0
        ended = False
        while True:
            while position < len(buffer) and buffer[position] in _SPACE:
                position += 1
            if position < len(buffer):
                char = buffer[position]
                if array is None:
                    array = char == "["
                    position += array
                    continue
                if array and char in ",]":
                    position += 1
                    if char == "]":
                        yield from _after_array(buffer[position:], file, number)
                        return
                    continue
                try:
                    value, end = scan(buffer, position)
                    complete = end < len(buffer) or ended  # a number at the end may go on
                except (ValueError, RecursionError) as error:
                    complete, end = False, position
                    if ended:
                        yield Item(
                            number + 1, problem=_reason(error), tail=True, text=buffer[position:][:1000].encode()
                        )
                        return
                if complete:
                    number += 1
                    yield Item(number, clean_tree(value))
                    position, step = end, _PEEK
                    continue
            elif ended:
                if array:
                    yield Item(number + 1, problem="the array is not closed", tail=True)
                return
            chunk = file.read(step)
            step = min(step * 2, 1 << 26)
            ended = not chunk
            buffer = buffer[position:] + decoder.decode(chunk, final=ended)
            position = 0
    except UnicodeDecodeError:
        yield Item(number + 1, problem="not UTF-8", tail=True)


def _after_array(rest: str, file: IO[bytes], number: int) -> Iterator[Item]:
    if rest.strip() or file.read(1 << 20).strip():
        yield Item(number + 1, problem="there is more behind the end of the array", text=rest.strip()[:1000].encode())


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def keeps_to_lines(head: bytes) -> bool:
    """Does a stream that begins like this hold one value a line? A byte order mark may stand before it."""
    return not _spans_lines(head.removeprefix(_BOM))
