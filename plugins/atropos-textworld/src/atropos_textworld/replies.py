"""Finds the one command in a model's reply.

The rule, in this order:

1. A tool call `execute_command` with a `command`, as the server's tool_calls.
2. Thoughts are dropped: everything up to the last `</think>`, and `<memory>` blocks. A `<think>`
   that is never closed means that the reply holds no command.
3. The first `<tool_call>` in the text: a JSON object (Python's literal form is accepted) with
   name "execute_command" and arguments with a text "command".
4. The last line that begins with `>`, or with `Action:` or `Command:`. What follows a line that
   begins with `Observation:` is the model's own invention and is not looked at.
5. The last line that is not empty.

A reply from which no command can be taken is Malformed. It is never replaced by a harmless
command such as "look": the model would be rewarded for what it did not say.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from atropos_cli.sdk import Message

TOOL = "execute_command"
LONGEST_LINE = 120

Fault = Literal["empty", "unclosed_think", "bad_json", "wrong_tool", "no_command", "too_long"]
FAULTS: tuple[Fault, ...] = ("empty", "unclosed_think", "bad_json", "wrong_tool", "no_command", "too_long")

_MEMORY = re.compile(r"<memory>.*?</memory>", re.DOTALL)
_MARKED = re.compile(r"^\s*(?:>|\**(?:action|command)\**\s*:\**)\s*(.*)$", re.IGNORECASE)
_OBSERVATION = re.compile(r"^\s*observation\s*:", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^\s*```\w*\s*$")


@dataclass(frozen=True, slots=True)
class Malformed:
    """A reply without a command. `fault` is counted."""

    fault: Fault


def find_command(reply: Message) -> str | Malformed:
    """The command a reply asks for, not yet sanitised."""
    if reply.tool_calls:
        call = reply.tool_calls[0].function
        return _from_call({"name": call.name, "arguments": call.arguments})
    text = reply.text
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    if "<think>" in text:
        return Malformed("unclosed_think")
    text = _MEMORY.sub("", text)
    _, tag, after = text.partition("<tool_call>")
    if tag:
        value = _object(after)
        return Malformed("bad_json") if value is None else _from_call(value)
    return _from_lines(text)


def _from_lines(text: str) -> str | Malformed:
    invented = _OBSERVATION.search(text)
    lines = [line.strip() for line in text[: invented.start() if invented else None].splitlines()]
    lines = [line for line in lines if line and not _FENCE.match(line)]
    if not lines:
        return Malformed("empty")
    marked = [match.group(1) for match in map(_MARKED.match, lines) if match]
    line = marked[-1] if marked else lines[-1]
    return line if len(line) <= LONGEST_LINE else Malformed("too_long")


def _object(text: str) -> dict[str, Any] | None:
    """The object at the first brace, as JSON or as a Python literal; None for anything else."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text[start:])
    except ValueError:
        end = text.find("</tool_call>")
        try:
            value = ast.literal_eval(text[start : end if end > 0 else None].strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    except RecursionError:
        return None
    return value if isinstance(value, dict) else None


def _from_call(call: dict[str, Any]) -> str | Malformed:
    if call.get("name") != TOOL:
        return Malformed("wrong_tool")
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        arguments = _object(arguments)
        if arguments is None:
            return Malformed("bad_json")
    command = arguments.get("command") if isinstance(arguments, dict) else None
    return command if isinstance(command, str) else Malformed("no_command")
