"""How the baselines choose a command, and the reply they put around it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence

from atropos_cli.sdk import Message
from atropos_textworld.replies import TOOL

_ROOM = re.compile(r"-= (.+?) =-")
_FORM = re.compile(r"\b[a-z]+ (?:THING|NUMBER)(?: [a-z]+ (?:THING|NUMBER))?")
_FORMS = ("go DIRECTION", "look", "inventory", "open THING", "take THING", "examine THING")
_BLANK = re.compile(r"THING|NUMBER|DIRECTION")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*|[.,;:!?\n]")
_NUMBER = re.compile(r"\b\d+\b")
_DIRECTIONS = ("north", "south", "east", "west")
_LISTED = "You can: "
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are as at but by can could do exit for from had has have he here i if in into is it its just leading
        like look make me more my near next no not nothing of oh on or out over see she so some than that the there
        they thing this to up was way well were what when where which who will with would you your yourself
        """,
    )
)
"""Words that cannot belong to the name of a thing."""

Conversation = Sequence[Message]


def random_command(messages: Conversation, rng: random.Random) -> str:
    """One of the forms the system message tells, filled in with words of the last observation."""
    rules = "\n".join(message.text for message in messages if message.role == "system")
    forms = sorted({*_FORMS, *_FORM.findall(rules)})
    seen = last_observation(messages)
    things = _things(seen)
    words = {"THING": things, "NUMBER": _NUMBER.findall(seen) or ["1"], "DIRECTION": list(_DIRECTIONS)}
    return _BLANK.sub(lambda match: rng.choice(words[match[0]]), rng.choice(forms))


def _things(observation: str) -> list[str]:
    """Names that a thing might have: runs of one and two words that are no stop words."""
    found: dict[str, None] = {}
    before = ""
    for match in _WORD.finditer(observation):
        word = match[0].lower()
        if not word[0].isalpha() or word in _STOP:
            before = ""
            continue
        found.setdefault(word)
        if before:
            found.setdefault(f"{before} {word}")
        before = word
    return list(found) or ["thing"]


def last_observation(messages: Conversation) -> str:
    """What the game said last, without a list of admissible commands."""
    for message in reversed(messages):
        if message.role in ("user", "tool"):
            return message.text.split(_LISTED)[0]
    return ""


def reply(messages: Conversation, command: str, thought: str) -> str:
    """A whole reply as the environment asks for it: thinking, memory, and a tool call with a prediction."""
    rooms = _ROOM.findall(last_observation(messages))
    memory = f"{rooms[-1] if rooms else 'After that'}: I did {command}."
    call = {"name": TOOL, "arguments": {"command": command, "expected_outcome": prediction(command)}}
    blocks = {"think": thought, "memory": memory, "tool_call": json.dumps(call, sort_keys=True)}
    return "\n".join(f"<{tag}>{text}</{tag}>" for tag, text in blocks.items())


def prediction(command: str) -> str:
    """What usually happens after a command, in the game's own manner of speaking."""
    verb, _, rest = command.partition(" ")
    thing = re.split(r" (?:from|into|on|with) ", rest)[0]
    known = {
        "go": f"I walk {rest} and come into another room.",
        "take": f"You take the {thing}.",
        "open": f"You open the {thing}.",
        "close": f"You close the {thing}.",
        "unlock": f"You unlock the {thing}.",
        "put": f"You put the {rest}.",
        "insert": f"You put the {rest}.",
        "drop": f"You drop the {thing} on the ground.",
        "eat": f"You eat the {thing}. Not bad.",
        "inventory": "You are carrying some things.",
    }
    return known.get(verb, f"The game tells me what happens when I {command}.")
