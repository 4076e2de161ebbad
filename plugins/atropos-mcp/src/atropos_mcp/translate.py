"""From MCP to what a model reads: schemas to OpenAI functions, results to text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk import JsonDict
from atropos_mcp.wire import ServerFault

_MOST_SCHEMA = 100_000
_MOST_DESCRIPTION = 10_000


def functions(tools: Sequence[JsonDict]) -> dict[str, tuple[str, JsonDict]]:
    """By the name for the model: the server's own name and the function schema. Raises ServerFault.

    In names, characters but letters, digits, _ and - become _, and 64 are kept. A schema that is not an object, or
    is longer than 100 000 characters, is replaced by one that allows all arguments: the server checks them anyway.
    """
    found: dict[str, tuple[str, JsonDict]] = {}
    for tool in tools:
        own = str(tool.get("name", ""))
        name = re.sub(r"[^A-Za-z0-9_-]", "_", own)[:64]
        if not name:
            raise ServerFault("it lists a tool without a name")
        if name in found:
            other = found[name][0]
            what = (
                f"the tool {own!r} twice" if other == own else f"tools {other!r} and {own!r}, both {name!r} for a model"
            )
            raise ServerFault(f"it lists {what}")
        about: JsonDict = {
            "name": name,
            "description": str(tool.get("description") or tool.get("title") or "")[:_MOST_DESCRIPTION],
            "parameters": _parameters(tool.get("inputSchema")),
        }
        found[name] = (own, {"type": "function", "function": about})
    return found


def _parameters(schema: Any) -> JsonDict:
    anything: JsonDict = {"type": "object", "properties": {}}
    if not isinstance(schema, dict) or schema.get("type") != "object" or _too_long(schema):
        return anything
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(one, dict | bool) for one in properties.values()):
        return anything
    if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
        return anything
    return {**{key: value for key, value in schema.items() if key != "title"}, "properties": properties}


def _too_long(schema: JsonDict) -> bool:
    try:
        return len(json.dumps(schema)) > _MOST_SCHEMA
    except (ValueError, RecursionError):
        return True


def text_of(result: JsonDict) -> str:
    """A result as text, its parts in order, a line for each that is not text.

    Text as it is; an embedded text resource as its text; images, audio and other resources as their kind and size,
    since a message of a tool is text; structured content as JSON where there is no text.
    """
    content = result.get("content")
    parts = [_part(part) for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    if "structuredContent" in result and not any(part.strip() for part in parts):
        return json.dumps(result["structuredContent"], ensure_ascii=False)
    return "\n".join(parts)


def _part(part: JsonDict) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", ""))
    if kind in ("image", "audio"):
        return f"[{kind} {part.get('mimeType', '')}, {_size(part.get('data'))} bytes]"
    if kind == "resource_link":
        return f"[resource {part.get('uri', '')}]"
    if kind == "resource" and isinstance(resource := part.get("resource"), dict):
        if isinstance(text := resource.get("text"), str):
            return text
        return (
            f"[resource {resource.get('uri', '')} {resource.get('mimeType', '')}, {_size(resource.get('blob'))} bytes]"
        )
    return f"[{kind}]"


def _size(data: Any) -> int:
    """Bytes of a base64 text."""
    return len(data.rstrip("=")) * 3 // 4 if isinstance(data, str) else 0
