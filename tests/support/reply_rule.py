"""Replies by a rule, from the text of the prompt alone: the same wherever it is asked. Standard library only.

Text games: take what the goal names, open a closed door, else walk a way least tried; some replies hold no command.
Arithmetic with tools: compute by a call, give its result; some answers are wrong.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter

TURN = "<|im_start|>"
END = "<|im_end|>"


def reply(prompt: str) -> str:
    """What the model says to a prompt in ChatML, without the end token."""
    turns = [turn.rpartition(END)[0] for turn in prompt.split(TURN)[1:-1]]
    roles, contents = zip(*(turn.split("\n", 1) for turn in turns), strict=True)
    chance = zlib.crc32(prompt.encode())
    if "<tool_call>" in prompt or any(content.startswith("Tools: ") for content in contents):
        return _calculated(roles[-1], contents[-1], chance)
    return _walked(contents, chance)


def logprobs(ids: list[int]) -> list[float]:
    """Made up."""
    return [-0.5 - 0.01 * (place % 50) for place in range(len(ids))]


def _calculated(role: str, last: str, chance: int) -> str:
    if role == "tool" or "<tool_response>" in last:
        found = re.findall(r"-?\d+", last)
        return found[-1] if found and chance % 2 else "I do not know."
    a, b, c, d = [*re.findall(r"\d+", last), "1", "1", "1", "1"][:4]
    call = {"name": "calculate", "arguments": {"expression": f"({a} * {b} + {c}) % {d}"}}
    return f"I compute.\n<tool_call>{json.dumps(call)}</tool_call>"


def _walked(contents: tuple[str, ...], chance: int) -> str:
    goal = next((text.split("\n\n")[0] for text in contents if not text.startswith("You are playing")), "")
    seen = contents[-1]
    for thing in re.findall(r"(?:a|an|the) (\w+ \w+) (?:and|on the floor)", seen):
        if thing in goal:
            return f"There it is.\n> take {thing}"
    if closed := re.search(r"closed (\w+ \w+)", seen):
        return f"> open {closed[1]}"
    if chance % 11 == 0:
        return "I wonder where to go."
    room, tried = "", Counter[tuple[str, str]]()
    for text in contents:
        if gone := re.search(r"> go (\w+)$", text):
            tried[room, gone[1]] += 1
        room = next(iter(re.findall(r"-= (.+?) =-", text)), room)
    place = next((text for text in reversed(contents) if "-= " in text), "")
    ways = [way for way in ("north", "east", "south", "west") if way in place] or ["north", "east", "south", "west"]
    way = min(ways, key=lambda way: (tried[room, way], zlib.crc32(f"{chance}{way}".encode())))
    return f"Let me walk.\n> go {way}"
