"""Finds the one command in a model's reply.

The rule, in this order:

1. A tool call `execute_command` with a `command`, as the server's tool_calls.
2. Thinking is dropped: what is up to the last `</think>`. A `<think>` that is never closed means
   that the reply holds no command. `<memory>` blocks are dropped too.
3. The first `<tool_call>` in the text: name "execute_command", with a text "command" among its
   arguments. Repairs that leave no doubt are made (`parse_tool_calls`); a call that cannot be read
   makes the reply malformed, whatever else it says.
4. The last line that begins with `>`, or with `Action:` or `Command:`. What follows a line that
   begins with `Observation:` is the model's own invention and is not looked at.
5. The last line that is not empty.

A reply from which no command can be taken is Malformed. It is never replaced by a harmless
command such as "look": the model would be rewarded for what it did not say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from atropos_cli.sdk import Message, ToolParse, parse_tool_calls, split_thinking
from atropos_textworld.commands import Refused, sanitise

TOOL = "execute_command"
LONGEST_LINE = 120

Fault = Literal["empty", "unclosed_think", "bad_tool_call", "wrong_tool", "no_command", "too_long"]
FAULTS: tuple[Fault, ...] = ("empty", "unclosed_think", "bad_tool_call", "wrong_tool", "no_command", "too_long")

_MEMORY = re.compile(r"<memory>.*?</memory>", re.DOTALL)
_MARKED = re.compile(r"^\s*(?:>|\**(?:action|command)\**\s*:\**)\s*(.*)$", re.IGNORECASE)
_OBSERVATION = re.compile(r"^\s*observation\s*:", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^\s*```\w*\s*$")


@dataclass(frozen=True, slots=True)
class Malformed:
    """A reply without a command. `fault` is counted."""

    fault: Fault

    @property
    def name(self) -> str:
        """As it is counted."""
        return f"malformed_{self.fault}"


Found = str | Malformed | Refused


def read_command(reply: Message, previous: str | None) -> Found:
    """The command to play, sanitised; "again" is the previous one. Or why there is none."""
    found = find_command(reply)
    if isinstance(found, Malformed):
        return found
    command = sanitise(found)
    if command in ("g", "again"):
        return previous or Refused("empty")
    return command


def find_command(reply: Message) -> str | Malformed:
    """The command a reply asks for, not yet sanitised."""
    if reply.tool_calls:
        calls = [call.model_dump() for call in reply.tool_calls]
        return _from_calls(parse_tool_calls({"tool_calls": calls}, "openai"))
    _, text = split_thinking(reply.text)
    if text is None:
        return Malformed("unclosed_think")
    if "tool_call>" in text:
        parse = parse_tool_calls(text, "hermes")
        if parse.status != "none":
            return _from_calls(parse)
    return _from_lines(_MEMORY.sub("", text))


def _from_lines(text: str) -> str | Malformed:
    invented = _OBSERVATION.search(text)
    lines = [line.strip() for line in text[: invented.start() if invented else None].splitlines()]
    lines = [line for line in lines if line and not _FENCE.match(line)]
    if not lines:
        return Malformed("empty")
    marked = [match.group(1) for match in map(_MARKED.match, lines) if match]
    line = marked[-1] if marked else lines[-1]
    return line if len(line) <= LONGEST_LINE else Malformed("too_long")


def _from_calls(parse: ToolParse) -> str | Malformed:
    if not parse.calls:
        return Malformed("bad_tool_call")
    call = parse.calls[0]
    if call.name != TOOL:
        return Malformed("wrong_tool")
    command = call.arguments.get("command")
    return command if isinstance(command, str) else Malformed("no_command")
