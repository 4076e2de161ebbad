"""Where the memory blocks and tool calls of a reply are, by the rules that decide which calls are executed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from atropos_cli.text.toolparsing.fault import CallFault
from atropos_cli.text.toolparsing.formats import READERS
from atropos_cli.text.toolparsing.found import Found, ParsedCall, Reader, walk
from atropos_cli.text.toolparsing.lenient_json import JsonFault

_CLOSE_TAG = "</tool_call>"
_BROKEN = 32
"""Broken calls that are read on behind; each may cost a look at all the text."""
_MARK = re.compile(r"</?[A-Za-z]+>")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a reply. text: without the marks around it.

    calls: of kind "call". fault: why a call cannot be read (see ToolParse.error).
    """

    kind: Literal["text", "memory", "call"]
    text: str
    calls: tuple[ParsedCall, ...] = ()
    fault: str | None = None


def reply_blocks(answer: str) -> list[Block]:
    """An answer in its parts, in order: text, <memory> blocks, <tool_call> blocks. Thinking is split off before.

    Unlike `parse_tool_calls`, which refuses all calls where one is broken, this continues behind a broken one.
    """
    if "</" not in answer and "<tool_call>" not in answer:
        return [Block("text", answer)] if answer else []
    hermes = READERS["hermes"]
    spans: list[tuple[int, int, Block]] = []

    def read(text: str, match: re.Match[str], found: Found) -> int:
        before, segment, fault = len(found.calls), found.segment, None
        opened = match.group() != _CLOSE_TAG
        try:
            end = hermes.read(text, match, found)
        except (JsonFault, CallFault) as problem:
            if not opened or sum(block.fault is not None for _, _, block in spans[-_BROKEN:]) >= _BROKEN:
                raise
            fault = problem.code
            close = text.find(_CLOSE_TAG, match.end())
            end = found.segment = close + len(_CLOSE_TAG) if close >= 0 else len(text)
        calls = tuple(found.calls[before:])
        if calls or fault:
            start = match.start() if opened else segment
            inner = text[match.end() if opened else start : end].strip().removesuffix(_CLOSE_TAG).strip()
            spans.append((start, end, Block("call", inner, calls, fault)))
        return end

    found = Found(None)
    walk(answer, Reader(hermes.opener, read), found)
    for start, end in found.hidden:
        inner = answer[start:end]
        opening, closing = _MARK.match(inner), inner.rfind("</")
        spans.append((start, end, Block("memory", inner[opening.end() if opening else 0 : closing].strip())))
    return _with_text(answer, sorted(spans, key=lambda span: span[0]))


def _with_text(answer: str, spans: list[tuple[int, int, Block]]) -> list[Block]:
    """The blocks, and the texts between them."""
    blocks: list[Block] = []
    pos = 0
    for start, end, block in spans:
        if answer[pos:start].strip():
            blocks.append(Block("text", answer[pos:start].strip("\n")))
        blocks.append(block)
        pos = end
    if answer[pos:].strip() or not blocks:
        blocks.append(Block("text", answer[pos:].strip("\n") if blocks else answer))
    return blocks
