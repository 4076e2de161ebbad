"""The blocks of a reply: <think>, <memory>, <tool_call>, once each and in this order.

Rules of the memory block: what stands inside thinking or inside a tool call is not looked at, then the first
non-empty block counts; a block that is nested in a tool call's JSON or never closed is no memory; text is
neither cut nor unescaped, only control characters go. `<remember>`, which models improvise, is read too but
earns no format credit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "missing", "empty", "too_short", "too_long", "no_alnum", "unclosed"]

MIN_CHARACTERS = 10
MAX_CHARACTERS = 500
_TAGS = re.compile(r"<(/?)(think|memory|remember|tool_call)>")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Unicode's control characters (Cc), but for newline and tab."""


@dataclass(frozen=True, slots=True)
class Block:
    """A closed block at the top level of a reply. start and end are offsets of the whole block."""

    tag: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The top-level blocks of a reply, in order, and the tag of a block that was opened and never closed."""

    found: tuple[Block, ...]
    unclosed: str | None
    stray: bool
    """True when other text than white space stands between or around the blocks."""


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """What was found: memory is None unless status is "ok"; tag is the one used, None when there was no block."""

    status: Status
    memory: str | None
    tag: str | None
    format_ok: bool


def read_blocks(text: str) -> Blocks:
    """Split a reply into its top-level blocks in one pass; what stands inside a block is that block's text."""
    found: list[Block] = []
    outside: list[str] = []
    position = 0
    while True:
        opening = _TAGS.search(text, position)
        if opening is None:
            outside.append(text[position:])
            return Blocks(tuple(found), None, any(part.strip() for part in outside))
        outside.append(text[position : opening.start()])
        closing, tag = opening[1], opening[2]
        if closing:
            position = opening.end()
            continue
        end = _closing_tag(text, tag, opening.end())
        if end < 0:
            return Blocks(tuple(found), tag, True)
        found.append(Block(tag, text[opening.end() : end], opening.start(), end + len(tag) + 3))
        position = found[-1].end


def _closing_tag(text: str, tag: str, start: int) -> int:
    """Where the block's own closing tag stands; a whole tool call inside a memory is stepped over."""
    depth = 1
    for match in _TAGS.finditer(text, start):
        if match[2] == tag:
            depth += -1 if match[1] else 1
            if depth == 0:
                return match.start()
            if not match[1] and tag in ("memory", "remember"):
                return -1  # a memory opened inside a memory: nested, so not closed in any sure sense
        elif tag == "memory" and match[2] == "tool_call" and not match[1] and text.find("</memory>", start) < 0:
            return -1
    return -1


def extract_memory(
    text: str, *, min_characters: int = MIN_CHARACTERS, max_characters: int = MAX_CHARACTERS
) -> MemoryBlock:
    """The memory of a reply. Lengths count characters after trimming."""
    blocks = read_blocks(text)
    memories = [block for block in blocks.found if block.tag == "memory"]
    tag = "memory"
    if not memories:
        memories = [block for block in blocks.found if block.tag == "remember"]
        tag = "remember"
    if not memories:
        status: Status = "unclosed" if blocks.unclosed in ("memory", "remember") else "missing"
        return MemoryBlock(status, None, None, False)
    texts = [_clean(block.text) for block in memories]
    memory = next((text for text in texts if text), "")
    status = _judge(memory, min_characters, max_characters)
    if status != "ok":
        return MemoryBlock(status, None, tag, False)
    return MemoryBlock("ok", memory, tag, _in_form(blocks, min_characters, max_characters))


def _in_form(blocks: Blocks, min_characters: int, max_characters: int) -> bool:
    """Thinking, memory and tool call: once each, in this order, closed, with nothing but white space around."""
    if blocks.stray or blocks.unclosed or [block.tag for block in blocks.found] != ["think", "memory", "tool_call"]:
        return False
    return _judge(_clean(blocks.found[1].text), min_characters, max_characters) == "ok"


def format_reward(
    text: str, *, block_credit: float = 0.05, order_factor: float = 0.5, extra_penalty: float = 0.2
) -> float:
    """Credit for the blocks: one for a single think block, one for a single memory block; halved unless think,
    memory and tool call come in this order; less a penalty for each block too many; never below 0."""
    tags = [block.tag for block in read_blocks(text).found if block.tag != "remember"]
    reward = sum(block_credit for tag in ("think", "memory") if tags.count(tag) == 1)
    firsts = [tags.index(tag) if tag in tags else None for tag in ("think", "memory", "tool_call")]
    known = [position for position in firsts if position is not None]
    if len(known) < 3 or known != sorted(known):
        reward *= order_factor
    extra = sum(max(0, tags.count(tag) - 1) for tag in ("think", "memory", "tool_call"))
    return max(0.0, reward - extra_penalty * extra)


def _clean(text: str) -> str:
    """Trimmed, without control characters (newlines and tabs stay)."""
    return _CONTROLS.sub("", text).strip()


def _judge(memory: str, least: int, most: int) -> Status:
    if not memory:
        return "empty"
    if len(memory) < least:
        return "too_short"
    if len(memory) > most:
        return "too_long"
    return "ok" if any(c.isalnum() for c in memory) else "no_alnum"
