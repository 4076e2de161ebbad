"""Tools inside an isolated worker: loads one file and calls its functions. Standard library only."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

_functions: dict[str, Any] = {}


def load(settings: Any) -> None:
    """Import the file. settings: {"file": path, "names": functions}."""
    given = json.loads(settings) if isinstance(settings, str) else settings
    spec = importlib.util.spec_from_file_location("atropos_isolated_tools", given["file"])
    if spec is None or spec.loader is None:
        raise ImportError(f"{given['file']} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    for name in given["names"]:
        _functions[name] = getattr(module, name)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Call one function: {"value": ...}, or {"error": "Type: message"}."""
    try:
        value = _functions[request["tool"]](**request["arguments"])
        return {"value": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}
    except Exception as error:  # noqa: BLE001 - the model reads it
        return {"error": f"{type(error).__name__}: {error}"[:2000]}
