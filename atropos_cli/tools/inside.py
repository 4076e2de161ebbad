"""Tools inside an isolated worker: loads one file and calls its functions. Standard library and pydantic only."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import json
import sys
from typing import Any

_functions: dict[str, Any] = {}


def load(settings: Any) -> None:
    """Import the file. settings: {"file": path, "names": functions}. Arguments become what the signatures say."""
    from pydantic import validate_call

    given = json.loads(settings) if isinstance(settings, str) else settings
    spec = importlib.util.spec_from_file_location("atropos_isolated_tools", given["file"])
    if spec is None or spec.loader is None:
        raise ImportError(f"{given['file']} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for name in given["names"]:
        _functions[name] = validate_call(getattr(module, name))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Call one function: {"value": ...}, or {"error": "Type: message"}."""
    try:
        value = _functions[request["tool"]](**request["arguments"])
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        return {"value": text_of(value)}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the model reads it
        return {"error": f"{type(error).__name__}: {error}"[:2000]}


async def _awaited(value: Any) -> Any:
    return await value


def text_of(value: Any) -> str:
    """A tool's result as the model reads it, in the worker and outside: text as it is, anything else as JSON."""
    from pydantic import BaseModel
    from pydantic_core import PydanticSerializationError, to_json

    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    try:
        return to_json(value, fallback=str, inf_nan_mode="constants").decode()
    except PydanticSerializationError:
        # Bytes other than UTF-8, or half surrogates, as in the names of files: json writes both as escapes.
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            return json.dumps(value, default=str)
        raise
