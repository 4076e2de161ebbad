"""From what the interpreter prints to what a player should read."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

_PROMPT = re.compile(r"\n?>[ ]*(-= [^\n]* =-[^\n]*)?\s*\Z")
"""The prompt for the next command, and the status bar padded out to its right: "-= Room =-score/turns"."""
_BANNER_LINE = re.compile(r"^[ ]*[\\|_$/<> ]*(\$\$|________|_______|\\  )[^a-z0-9]*$")
_SCORE = re.compile(r"^Your score (has just gone up|changed) by [^\n]* points?\.$", re.MULTILINE)
_END = re.compile(r"\n[ ]*\*\*\* (The End|You lost!) \*\*\*.*\Z", re.DOTALL)
_BLANK = re.compile(r"\n[ \t]*\n(?:[ \t]*\n)+")


@dataclass(frozen=True, slots=True)
class Observation:
    """What a command led to. `commands` are the admissible ones, sorted.

    acted: False when the game reported no successful action (not understood, or not possible).
    won, lost: stay as they are once one is True.
    """

    text: str
    commands: tuple[str, ...] = ()
    score: int = 0
    won: bool = False
    lost: bool = False
    acted: bool = True

    @property
    def done(self) -> bool:
        """Whether the game is over."""
        return self.won or self.lost

    def as_json(self) -> dict[str, Any]:
        """A JSON object from which `from_json` makes the same observation."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Observation:
        """Raises TypeError for an object that is no observation."""
        return cls(**{**data, "commands": tuple(data["commands"])})


def clean(feedback: str) -> str:
    """Drop the banner, the prompt with its status bar, score notices and the end-of-game menu.

    The end itself stays as one line, "*** The End ***" or "*** You lost! ***". Score is reported
    apart, so its notices would tell twice what an option may want hidden.
    """
    text = _PROMPT.sub("", feedback)
    text = "\n".join(line for line in text.split("\n") if not _BANNER_LINE.match(line))
    text = _SCORE.sub("", text)
    text = _END.sub(lambda match: f"\n\n*** {match.group(1)} ***", text)
    return _BLANK.sub("\n\n", text).strip()
