"""What the model is told."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_textworld.commands import Refusal
from atropos_textworld.engine.observation import Observation
from atropos_textworld.replies import Fault

SYSTEM = """\
You are playing a text adventure game. You see what happens, and you answer with one command.

The game knows these commands: {forms}. The command `goal` repeats what you have to do.

Think first if you like. Then write the command alone on the last line, after a > sign:
> open chest"""

_GO = ("go east", "go north", "go south", "go west")

REFUSED: dict[Refusal, str] = {
    "empty": "You say nothing.",
    "chain": "One command at a time, please. Nothing happens.",
    "system": "That is not a command of this game. Nothing happens.",
}

_FORM = "Write one command alone on the last line, after a > sign. Nothing happens."
MALFORMED: dict[Fault, str] = {
    "empty": f"Your reply is empty. {_FORM}",
    "unclosed_think": f"Your reply ends inside <think>. {_FORM}",
    "bad_tool_call": f"The tool call in your reply cannot be read. {_FORM}",
    "wrong_tool": f"There is no such tool; the only one is execute_command. {_FORM}",
    "no_command": f'The tool call in your reply has no text "command" among its arguments. {_FORM}',
    "too_long": f"The last line of your reply is too long for a command. {_FORM}",
}


def instructions(forms: Sequence[str]) -> str:
    """The system message for a game that knows these commands."""
    others = [form for form in forms if form not in _GO]
    return SYSTEM.format(forms=", ".join([*others, "go north (or south, east, west)"]))


def screen(text: str, observation: Observation, *, commands: bool, score: str, turns: str) -> str:
    """One observation as the model sees it; `score` and `turns` are left out when empty."""
    parts = [text or "Nothing happens."]
    status = "   ".join(part for part in (score, turns) if part)
    if status:
        parts.append(status)
    if commands:
        parts.append("You can: " + ", ".join(observation.commands))
    return "\n\n".join(parts)
