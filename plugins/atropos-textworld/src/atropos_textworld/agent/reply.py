"""What a reply of the agent holds: thinking, memory, command, prediction, and how well it kept the form."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from atropos_cli.sdk import Message, ToolParse, parse_tool_calls, split_thinking, thought_text
from atropos_textworld.agent.blocks import MemoryBlock, extract_memory, format_reward, read_blocks
from atropos_textworld.replies import Found, read_command

FULL_FORMAT = 0.1
"""What format_reward gives to a reply in the right form."""
LONGEST_PREDICTION = 1000
"""Characters of a prediction that are scored."""
SUMMARY_CHARACTERS = 200

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class AgentReply:
    """found: the command, or why there is none. prediction: blank when none was made. format: 0 to 1."""

    found: Found
    thinking: str
    memory: MemoryBlock
    prediction: str
    format: float

    @property
    def command(self) -> str | None:
        """The command to play, if there is one."""
        return self.found if isinstance(self.found, str) else None


def read_reply(message: Message, previous: str | None, *, memory: bool) -> AgentReply:
    """Take a reply apart. previous: the command played before. memory: a <memory> was asked for."""
    text = as_text(message)
    thinking, answer = split_thinking(text)
    return AgentReply(
        found=read_command(message, previous),
        thinking=thought_text(thinking) if answer is not None else "",
        memory=extract_memory(text),
        prediction=_prediction(message, answer or ""),
        format=_format(text, memory),
    )


def as_text(message: Message) -> str:
    """A reply as one text with its tags, also where the server took thinking or tool calls out of it."""
    text = message.text
    if message.reasoning:
        text = f"<think>{message.reasoning}</think>{text}"
    elif "<think>" not in text:
        # The chat template had opened it, or the model's family has other marks.
        thinking, answer = split_thinking(text)
        if answer is not None and thinking:
            text = f"<think>{thought_text(thinking)}</think>{answer}"
    for call in message.tool_calls or ():
        arguments = call.function.arguments
        text += f'\n<tool_call>{{"name": {json.dumps(call.function.name)}, "arguments": {arguments}}}</tool_call>'
    return text


def _format(text: str, memory: bool) -> float:
    if not memory:
        # Nobody asked for one: judged as if it were there, unless one is.
        blocks = read_blocks(text).found
        call = next((block for block in blocks if block.tag == "tool_call"), None)
        if call is not None and not any(block.tag in ("memory", "remember") for block in blocks):
            text = f"{text[: call.start]}<memory>nothing to note</memory>{text[call.start :]}"
    return min(1.0, format_reward(text) / FULL_FORMAT)


def _prediction(message: Message, answer: str) -> str:
    if message.tool_calls:
        parse: ToolParse = parse_tool_calls(
            {"tool_calls": [call.model_dump() for call in message.tool_calls]}, "openai"
        )
    else:
        parse = parse_tool_calls(answer, "hermes")
    if not parse.calls:
        return ""
    outcome = parse.calls[0].arguments.get("expected_outcome")
    return " ".join(outcome.split())[:LONGEST_PREDICTION] if isinstance(outcome, str) else ""


def for_history(message: Message, how: str) -> Message:
    """A reply as later prompts show it: `how` is keep, strip or summary."""
    changes: dict[str, object] = {"tokens": None, "finish_reason": None}
    if how != "keep":
        thinking, answer = split_thinking(message.text)
        if answer is not None and thinking:
            kept = _last_sentences(thought_text(thinking)) if how == "summary" else ""
            changes["content"] = f"<think>{kept}</think>\n{answer.strip()}" if kept else answer.strip()
        if message.reasoning:
            kept = _last_sentences(message.reasoning.strip()) if how == "summary" else ""
            changes["reasoning"] = kept or None
    return message.model_copy(update=changes)


def _last_sentences(text: str) -> str:
    """The end of a text, from a sentence's beginning, within SUMMARY_CHARACTERS; a longer last sentence is cut."""
    kept = ""
    for sentence in reversed(_SENTENCE.split(text)):
        longer = f"{sentence} {kept}".strip()
        if len(longer) > SUMMARY_CHARACTERS:
            break
        kept = longer
    return kept or text[-SUMMARY_CHARACTERS:].strip()
