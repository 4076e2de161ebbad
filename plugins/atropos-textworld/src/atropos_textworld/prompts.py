"""What the model is told."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_cli.sdk import Message, system
from atropos_cli.sdk.prompts import Prompt, packaged_prompt
from atropos_textworld.commands import Refusal
from atropos_textworld.engine.observation import Observation
from atropos_textworld.replies import Fault

PROMPT = packaged_prompt(__file__)

_GO = ("go east", "go north", "go south", "go west")

REFUSED: dict[Refusal, str] = {
    "empty": "You say nothing.",
    "chain": "One command at a time, please. Nothing happens.",
    "system": "That is not a command of this game. Nothing happens.",
}

FORM = "Write one command alone on the last line, after a > sign."
MALFORMED: dict[Fault, str] = {
    "empty": "Your reply is empty. {form} Nothing happens.",
    "unclosed_think": "Your reply ends inside <think>. {form} Nothing happens.",
    "bad_tool_call": "The tool call in your reply cannot be read. {form} Nothing happens.",
    "wrong_tool": "There is no such tool; the only one is execute_command. {form} Nothing happens.",
    "no_command": 'The tool call in your reply has no text "command" among its arguments. {form} Nothing happens.',
    "too_long": "The last line of your reply is too long for a command. {form} Nothing happens.",
}

AGENT_FORM = "Answer with one <tool_call> of execute_command, as you were told."

REMEMBERED = "What you noted in earlier turns:"

SUMMARY = """\
In one or two sentences, write down what is worth remembering of this turn of a text adventure game: places, things, \
doors, what is left to do. Write the sentences only.

Before: {before}

Command: {command}

After: {after}"""


def instructions(prompt: Prompt, name: str, forms: Sequence[str], *, memory: bool = False) -> tuple[Message, ...]:
    """The system message for a game that knows these commands, and the example turns."""
    others = [form for form in forms if form not in _GO]
    known = ", ".join([*others, "go north (or south, east, west)"])
    told = prompt.text(name, forms=known, memory=memory)
    return (*((system(told),) if told else ()), *prompt.examples(forms=known, memory=memory))


def screen(text: str, observation: Observation, *, commands: bool, score: str, turns: str) -> str:
    """One observation as the model sees it; `score` and `turns` are left out when empty."""
    parts = [text or "Nothing happens."]
    status = "   ".join(part for part in (score, turns) if part)
    if status:
        parts.append(status)
    if commands:
        parts.append("You can: " + ", ".join(observation.commands))
    return "\n\n".join(parts)


def with_memories(screen: str, memories: Sequence[str]) -> str:
    """The observation with what was found in the memory in front of it."""
    if not memories:
        return screen
    return "\n".join([REMEMBERED, *(f"- {memory}" for memory in memories)]) + "\n\n" + screen
