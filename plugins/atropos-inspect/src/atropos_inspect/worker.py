"""On the side of inspect_ai: one task, its samples as they are asked for, its model requests to the engine.

Run by path under the task's own Python; it imports nothing of atropos. Settings: {"task", "file", "args", "seed",
"mode"}, mode being "describe", "scorers" or "run". Requests:

    {"do": "sample", "index": I, "epoch": N, "roles": [those with a model in the run]}
        -> {"messages", "scores", "limit", "target", "choices"}

scores: {NAME: {"value", "answer", "explanation"}}, by the task's scorers first, then by its solver. limit: the kind of
inspect's limit that ended the sample, else None.
"""

from __future__ import annotations

import inspect
import os
import random
import sys
from pathlib import Path
from typing import Any

engine: Any = sys.modules["__main__"].load_module(
    "inspect_engine", str(Path(__file__).resolve().with_name("engine.py"))
)
sample: Any = sys.modules["__main__"].load_module(
    "inspect_sample", str(Path(__file__).resolve().with_name("sample.py"))
)


class State:
    """Of this process."""

    running: Any = None


async def start(settings: dict[str, Any]) -> dict[str, Any]:
    """Find the task and describe it; in mode run make it, and a model for its samples."""
    os.environ.setdefault("INSPECT_DISPLAY", "none")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    found = function(settings)
    about = {"doc": inspect.getdoc(found) or "", **parameters(found)}
    if settings["mode"] == "describe":
        return {**about, **tried(settings, about)}
    if settings["mode"] == "scorers":
        return {"scorers": sample.scorer_names(made(settings))}
    if missing := [name for name in about["required"] if name not in settings["args"]]:
        failed = TypeError(f"the task {settings['task']} needs {', '.join(missing)}")
        failed.hint = " ".join(f"--{name.replace('_', '-')} VALUE" for name in missing)  # type: ignore[attr-defined]
        raise failed
    random.seed(settings["seed"])
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(settings["seed"] % 2**32)
    State.running = sample.Running(made(settings), engine)
    return {**about, "ids": State.running.ids(), "inputs": State.running.inputs()}


def function(settings: dict[str, Any]) -> Any:
    """The function that makes the task. Raises LookupError."""
    from inspect_ai._eval.loader import load_file_tasks
    from inspect_ai._util.registry import registry_lookup

    if settings["file"] is not None:
        load_file_tasks(Path(settings["file"]))
    found = registry_lookup("task", settings["task"])
    if found is None:
        where = settings["file"] or "the packages of its Python"
        failed = LookupError(f"there is no task {settings['task']} in {where}")
        failed.hint = "FILE.py@TASK, or PACKAGE/TASK as inspect list tasks shows it"  # type: ignore[attr-defined]
        raise failed
    return found


def made(settings: dict[str, Any]) -> Any:
    """The task."""
    from inspect_ai._eval.loader import create_file_tasks, load_tasks

    if settings["file"] is not None:
        return create_file_tasks(Path(settings["file"]), [settings["task"]], settings["args"])[0]
    return load_tasks([settings["task"]], settings["args"])[0]


def tried(settings: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """The names of the task's scorers, where it can be made without arguments."""
    if about["required"]:
        return {"scorers": []}
    try:
        return {"scorers": sample.scorer_names(made(settings))}
    except Exception:  # noqa: BLE001 - data that is not there yet; a run names the error
        return {"scorers": []}


def parameters(found: Any) -> dict[str, Any]:
    """The schema of its parameters, the defaults that JSON has, and the names of those without one."""
    from pydantic import TypeAdapter

    schema: dict[str, Any] = {}
    values: dict[str, Any] = {}
    required = []
    for name, parameter in inspect.signature(found, eval_str=False).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty:
            required.append(name)
        elif plain(parameter.default):
            values[name] = parameter.default
        try:
            schema[name] = TypeAdapter(hint(found, name, parameter)).json_schema()
        except Exception:  # noqa: BLE001 - a type without a schema is given as JSON
            schema[name] = {}
    return {"schema": {"properties": schema}, "values": values, "required": required}


def hint(found: Any, name: str, parameter: Any) -> Any:
    """The type of a parameter; Any where it has none that can be read."""
    import typing

    if parameter.annotation is parameter.empty:
        return type(parameter.default) if isinstance(parameter.default, (bool, int, float, str)) else Any
    try:
        return typing.get_type_hints(inspect.unwrap(found))[name]
    except Exception:  # noqa: BLE001 - a name that only a type checker sees
        return Any


def plain(value: Any) -> bool:
    """Is it JSON?"""
    if isinstance(value, (list, tuple)):
        return all(plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


async def answer(call: Any, request: dict[str, Any]) -> Any:
    """One request of the engine."""
    engine.CALL.set(call)
    engine.SAMPLED.set({})
    return await State.running.play(request["index"], request["epoch"], request["roles"])
