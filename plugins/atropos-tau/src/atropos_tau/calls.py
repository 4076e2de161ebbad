"""Arguments of calls, as servers and models write them."""

from __future__ import annotations

import json

from atropos_cli.sdk import JsonDict, ToolCall


def arguments_of(call: ToolCall) -> JsonDict | None:
    """The arguments as an object; no text at all is an empty one. None for anything else."""
    try:
        value = json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
