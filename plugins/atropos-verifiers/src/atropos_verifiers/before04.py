"""Environments of verifiers before 0.4: load_environment(), their loop and rubric, with the engine as client."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import importlib
import inspect
import json
import time
import typing
from typing import Any, ClassVar

import verifiers as vf
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage, Tool, ToolCall, Usage

PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}
FINISH = ("stop", "length", "tool_calls")
BROKEN: contextvars.ContextVar[dict[str, tuple[float, str]]] = contextvars.ContextVar("broken")
"""Reward functions that gave no number while rollouts were scored: weight and error, by name."""


class State:
    """The one environment of this process, and the rows of its splits."""

    env: Any = None
    rows: ClassVar[dict[str, Any]] = {}
    module: str = ""


def describe(module: Any) -> dict[str, Any]:
    """The arguments of load_environment() as a JSON schema, and their values."""
    State.module = module.__name__
    properties, values = {}, {}
    parameters = inspect.signature(module.load_environment).parameters
    try:
        hints = typing.get_type_hints(module.load_environment)
    except Exception:  # noqa: BLE001 - annotations of the environment that cannot be evaluated: defaults say the type
        hints = {}
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        if not is_json(default):
            continue
        kind = next((PLAIN[item] for item in options_of(hints.get(name)) if item in PLAIN), None)
        kind = kind or PLAIN.get(type(default))
        properties[name] = {"type": kind} if kind else {}
        values[name] = default
    return {"api": "before 0.4", "schema": {"properties": properties}, "values": values}


def options_of(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type itself."""
    found = [item for item in typing.get_args(hint) if item is not type(None)]
    return (hint,) if not found or typing.get_origin(hint) in (list, dict, tuple) else tuple(found)


def is_json(value: Any) -> bool:
    try:
        return bool(json.dumps(value))
    except (TypeError, ValueError):
        return False


async def make(settings: dict[str, Any]) -> dict[str, Any]:
    """Make the environment; the number of tasks by split, and whether rollouts of a task are scored together."""
    module = importlib.import_module(settings["module"])
    env = State.env = module.load_environment(**{**settings["config"], **settings["args"]})
    if not isinstance(env, vf.Environment):
        raise TypeError(f"load_environment() gave {type(env).__name__}, not an Environment of verifiers")
    if env.env_id is None or not env.env_id:
        env.env_id = settings["module"]
    for rubric in rubrics_of(env):
        rubric.funcs = [watched(*pair) for pair in zip(rubric.funcs, rubric.weights, strict=True)]
    sizes = {}
    for split, rows in (("train", env.get_dataset), ("test", env.get_eval_dataset)):
        try:
            State.rows[split] = rows()
        except ValueError as error:
            if "not set" not in str(error):
                raise
            continue
        sizes[split] = len(State.rows[split])
    return {"splits": sizes, "together": bool(env.requires_group_rollouts)}


def rubrics_of(env: Any) -> list[Any]:
    """All rubrics with functions, also of groups of rubrics and of environments."""
    found, left = [], [env.rubric, *(part.rubric for part in getattr(env, "envs", ()))]
    while left:
        rubric = left.pop()
        if rubric not in found:
            found.append(rubric)
            left += getattr(rubric, "rubrics", ())
    return found


def watched(function: Any, weight: float) -> Any:
    """A reward function whose failure is noted: the rubric itself takes 0 for it and goes on."""
    name = getattr(function, "__name__", repr(function))

    @functools.wraps(function)
    async def call(*args: Any, **given: Any) -> Any:
        try:
            value = function(*args, **given)
            if inspect.isawaitable(value):
                value = await value
            [float(item) for item in (value if isinstance(value, (list, tuple)) else [value])]
        except Exception as error:
            BROKEN.get()[name] = (weight, f"{type(error).__name__}: {error}")
            raise
        return value

    return call


async def stop() -> None:
    """End what the environment holds."""
    if State.env is not None:
        await State.env._teardown()


class EngineClient(Client):  # type: ignore[misc]
    """The engine in the place of a model server."""

    def __init__(self, call: Any, rollout: int) -> None:
        super().__init__(call)
        self._rollout = rollout

    def setup_client(self, config: Any) -> Any:
        return config

    async def to_native_tool(self, tool: Tool) -> dict[str, Any]:
        function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        if tool.strict is not None:
            function["strict"] = tool.strict
        return {"type": "function", "function": function}

    async def to_native_prompt(self, messages: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return [wire(message) for message in messages], {}

    async def get_native_response(
        self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **options: Any
    ) -> dict[str, Any]:
        """The engine's answer. Raises OverlongPromptError and ModelError."""
        request = {**(sampling_args or {}), "messages": prompt, **({"tools": tools} if tools else {})}
        try:
            answer: dict[str, Any] = await self.client.ask(kind="chat", rollout=self._rollout, **request)
        except RuntimeError as error:
            kind = vf.OverlongPromptError if str(error).startswith("ContextOverflow") else vf.ModelError
            raise kind(str(error)) from error
        return answer

    async def raise_from_native_response(self, response: Any) -> None:
        """The engine raises by itself."""

    async def from_native_response(self, response: dict[str, Any]) -> Response:
        return response_of(response)

    async def close(self) -> None:
        """Nothing is open."""


def response_of(answer: dict[str, Any]) -> Response:
    """The engine's answer as verifiers has it."""
    choice, usage = answer["choices"][0], answer["usage"]
    finish = choice["finish_reason"]
    calls = [
        ToolCall(
            id=item.get("id") or f"call_{place}",
            name=item["function"]["name"],
            arguments=item["function"]["arguments"],
        )
        for place, item in enumerate(choice.get("tool_calls") or ())
    ]
    return Response(
        id="engine",
        created=int(time.time()),
        model="engine",
        usage=Usage(reasoning_tokens=0, **usage),
        message=ResponseMessage(
            content=choice["content"],
            reasoning_content=choice.get("reasoning"),
            tool_calls=calls or None,
            finish_reason=finish if finish in FINISH else None,
            is_truncated=finish == "length",
        ),
    )


def wire(message: Any) -> dict[str, Any]:
    """A message in OpenAI's shape."""
    given: dict[str, Any] = message if isinstance(message, dict) else message.model_dump(exclude_none=True)
    made: dict[str, Any] = {
        key: given[key] for key in ("role", "content", "tool_call_id", "name", "reasoning_content") if key in given
    }
    if made["role"] == "text":  # a prompt that is no list of messages: their chat client says it as the user
        made["role"] = "user"
    if calls := given.get("tool_calls"):
        made["tool_calls"] = [
            call
            if "function" in call
            else {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in (item if isinstance(item, dict) else item.model_dump() for item in calls)
        ]
    return made


async def rollouts(call: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Rollouts of a row, scored: one by itself, or the group where the rubric compares."""
    env, row = State.env, State.rows[request["split"]][request["index"]]
    BROKEN.set({})
    if env.requires_group_rollouts:
        states = await group(call, row, request["count"])
    else:
        states = [await one(call, row)]
    task = {key: value for key, value in row.items() if key in ("answer", "info", "task", "example_id")}
    return {"task": task, "rollouts": [entry_of(state) for state in states]}


async def one(call: Any, row: Any) -> Any:
    env = State.env
    state = await env.rollout(row, EngineClient(call, 0), "engine", {})
    if state.get("error") is None:
        await (env.rubric.score_rollout(state) if env.score_rollouts else env.rubric.dummy_score_rollout(state))
    await env.rubric.cleanup(state)
    return state


async def group(call: Any, row: Any, count: int) -> list[Any]:
    env = State.env
    states = await asyncio.gather(
        *(env.rollout(row, EngineClient(call, number), "engine", {}) for number in range(count))
    )
    scored = [state for state in states if state.get("error") is None]
    if scored:
        await (env.rubric.score_group(scored) if env.score_rollouts else env.rubric.dummy_score_group(scored))
    for state in states:
        await env.rubric.cleanup(state)
    return list(states)


def entry_of(state: Any) -> dict[str, Any]:
    """A rollout for the engine."""
    error = state.get("error")
    metrics = state.get("metrics") or {}
    entry: dict[str, Any] = {
        "branches": branches_of(state),
        "reward": state.get("reward"),
        "metrics": {name: value for name, value in metrics.items() if isinstance(value, (int, float))},
        "stop": stop_of(state),
        "info": {"stop_condition": state.get("stop_condition")},
    }
    if error is not None:
        entry["error"] = error_of(error)
    for name, (weight, said) in BROKEN.get().items():
        entry["metrics"].pop(name, None)
        if weight:
            broken = {"type": "RewardFailed", "message": f"reward function {name}: {said}", "stage": "score"}
            entry.setdefault("error", broken)
    return entry


def error_of(error: BaseException | dict[str, Any]) -> dict[str, Any]:
    """The first cause of an error, and whether it was the model's."""
    if isinstance(error, dict):
        return {"type": "Error", "message": str(error.get("error_chain_str") or error), "model": False}
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    said = str(first) or str(error)
    return {"type": type(error).__name__, "message": said, "model": isinstance(error, vf.ModelError)}


def stop_of(state: Any) -> str | None:
    """Why it ended, where that is another reason than the last reply's."""
    condition = state.get("stop_condition")
    if condition == "prompt_too_long":
        return "context_length"
    if condition in ("timeout_reached", "max_total_completion_tokens_reached"):
        return "step_limit"
    # After one turn it is over as it is meant to be. How many it may have, a group of environments does not say.
    turns = len(state.get("trajectory") or ())
    return "step_limit" if condition == "max_turns_reached" and turns > 1 else None


def branches_of(state: Any) -> list[list[dict[str, Any]]]:
    """The conversation; where later requests do not extend earlier ones, each of those before it too."""
    steps = [
        ([wire(item) for item in step["prompt"]], [wire(item) for item in step["completion"]])
        for step in state.get("trajectory") or ()
    ]
    found: list[list[dict[str, Any]]] = []
    for prompt, reply in steps:
        if found and prompt[: len(found[-1])] == found[-1]:
            found[-1] = prompt + reply
        else:
            found.append(prompt + reply)
    if not found:
        return [[wire(item) for item in state.get("prompt") or ()]]
    whole = [wire(item) for item in [*(state.get("prompt") or ()), *(state.get("completion") or ())]]
    if whole[: len(found[-1])] == found[-1]:
        found[-1] = whole
    return found
