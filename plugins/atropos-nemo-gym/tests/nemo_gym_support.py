"""Rows of tasks, and replies that call tools."""

from __future__ import annotations

import json
from typing import Any

TOOLS = [
    {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}},
    {"type": "function", "name": "get", "parameters": {"type": "object", "properties": {}}, "strict": True},
]


def row(initial: int, expected: int) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": f"From {initial} to {expected}."}], "tools": TOOLS}
    return {"responses_create_params": params, "initial": initial, "expected": expected}


def call(name: str, **arguments: Any) -> str:
    """A reply that calls a tool, as a model writes it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"
