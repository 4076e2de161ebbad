"""Environments of verifiers from 0.4: tasksets and their Env, with the engine as client and a chat loop as harness.

Their own harness starts a Python for each rollout. The one here (`harness04`) runs in this process, for every agent
that has no harness of its own; its requests pass their interception server, which records the trace, as all do.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import verifiers.v1 as vf
from verifiers.v1.clients import Client
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.dialects import ChatDialect
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.env import RunSlot
from verifiers.v1.errors import model_error
from verifiers.v1.interception import server as interception
from verifiers.v1.utils.loaders import env_config_type, load_environment, resolve_env_config, taskset_config_type

ENGINE = "http://engine.invalid/v1"
CHAT = "atropos_chat"
OWN = frozenset({None, "null", "bash"})
"""Harnesses in whose place is ours: none at all, and their chat loop. bash is their default, and only that here."""
OVERFLOW = "ContextOverflow"
LIMITS = frozenset({"max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens"})
FINISH = ("stop", "length", "tool_calls")
PR_SET_PDEATHSIG = 1


class State:
    """The one environment of this process, its tasks in order, and who asks in which rollout."""

    env: Any = None
    tasks: Iterator[Any] = iter(())
    drawn: ClassVar[list[Any]] = []
    drawing: Any = None
    calls: ClassVar[dict[str, tuple[Any, str]]] = {}
    open: Any = None
    module: str = ""


def describe(module: Any) -> dict[str, Any]:
    """The fields of the taskset's config, and their values."""
    State.module = module.__name__
    config = taskset_config_type(module.__name__)
    schema = config.model_json_schema()
    schema["properties"] = {name: item for name, item in schema.get("properties", {}).items() if name != "id"}
    try:
        values = config(id=module.__name__).model_dump(mode="json")
    except ValueError:  # a field without a default
        values = {}
    return {"api": "0.4", "schema": schema, "values": values}


async def make(settings: dict[str, Any]) -> dict[str, Any]:
    """Make the environment and open what its rollouts share; the number of tasks by split."""
    harness = sys.modules["__main__"].load_module(CHAT, str(Path(__file__).with_name("harness04.py")))
    sys.modules[CHAT] = harness
    interception.resolve_client = resolve_client
    end_children_with_us()
    env = State.env = load_environment(config_of(settings))
    State.open = contextlib.AsyncExitStack()
    await State.open.enter_async_context(env.serving())
    State.drawing = asyncio.Lock()
    State.tasks = iter(env.taskset)
    if not env.taskset.bounded:
        return {"splits": {"train": None}, "together": False}
    State.drawn = list(State.tasks)
    return {"splits": {"train": len(State.drawn)}, "together": False}


def config_of(settings: dict[str, Any]) -> Any:
    """The EnvConfig: the options as the taskset's config, `args` over all, our harness where there is no other."""
    name = settings["module"]
    given = settings["args"]
    taskset = {**(given.get("taskset") or {}), **settings["config"], "id": name}
    roles = agent_config_fields(env_config_type(name, given.get("id") or "").model_construct())
    agents = {role: agent_of(spec, given.get(role) or {}, settings["harness"]) for role, spec in roles.items()}
    return resolve_env_config({**given, "taskset": taskset, **agents})


def agent_of(spec: Any, given: dict[str, Any], harness: str | None) -> dict[str, Any]:
    """An agent's config: the given fields, with a harness and a place to run that need no account anywhere."""
    made = dict(given)
    own = (made.get("harness") or {}).get("id") if "harness" in made else getattr(spec.harness, "id", None)
    if harness is not None:
        made["harness"] = {**(made.get("harness") or {}), "id": harness}
    elif own in OWN and "harness" not in made:
        made["harness"] = {"id": CHAT}
    made.setdefault("runtime", {"type": "subprocess"})
    return made


def end_children_with_us() -> None:
    """Their servers of tools run in sessions of their own: the kernel is to end them when this process is killed."""
    libc = ctypes.CDLL(None)
    start = asyncio.create_subprocess_exec

    async def tied(*command: Any, **how: Any) -> Any:
        how.setdefault("preexec_fn", lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        return await start(*command, **how)

    asyncio.create_subprocess_exec = tied


async def stop() -> None:
    """End the servers that the rollouts shared."""
    if State.open is not None:
        await State.open.aclose()


def resolve_client(config: Any) -> Client:
    """The engine, where a config names it; a server that an agent was given is asked itself."""
    from verifiers.v1.clients.client import resolve_client as theirs

    return EngineClient() if config.base_url == ENGINE else theirs(config)


class EngineClient(Client):  # type: ignore[misc]
    """The engine in the place of a model server."""

    async def get_response(
        self,
        dialect: Any,
        body: dict[str, Any],
        sampling: Any,
        session_id: str | None = None,
        turn: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The engine's reply. Raises ProviderError."""
        if not isinstance(dialect, ChatDialect):
            raise model_error(f"{type(dialect).__name__}: the engine answers chat completions alone", status_code=400)
        call, rollout = State.calls[session_id or ""]
        request = {key: value for key, value in body.items() if key not in ("model", "stream", "stream_options")}
        try:
            answer = await call.ask(kind="chat", rollout=rollout, **request)
        except RuntimeError as error:
            # 400: the engine has tried it again already.
            raise model_error(str(error), status_code=400) from error
        raw = completion_of(answer)
        response = dialect.parse_response(dialect.validate_response(raw))
        response.raw = raw
        return response


def completion_of(answer: dict[str, Any]) -> dict[str, Any]:
    """The engine's answer as a chat completion."""
    choice = answer["choices"][0]
    message: dict[str, Any] = {"role": "assistant", "content": choice["content"]}
    if "reasoning" in choice:
        message["reasoning_content"] = choice["reasoning"]
    if calls := choice.get("tool_calls"):
        message["tool_calls"] = [{**item, "id": item.get("id") or f"call_{n}"} for n, item in enumerate(calls)]
    finish = choice["finish_reason"]
    return {
        "id": "engine",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "engine",
        "choices": [{"index": 0, "message": message, "finish_reason": finish if finish in FINISH else "stop"}],
        "usage": answer["usage"],
    }


async def task_at(index: int) -> Any:
    """Task number `index`: they come in order, in whatever order they are asked for."""
    async with State.drawing:
        missing = index + 1 - len(State.drawn)
        State.drawn += itertools.islice(State.tasks, max(0, missing))
    if index >= len(State.drawn):
        raise LookupError(f"the taskset has {len(State.drawn)} tasks")
    return State.drawn[index]


async def rollouts(call: Any, request: dict[str, Any]) -> dict[str, Any]:
    """One episode of a task: a rollout for each agent that is trained on."""
    task = await task_at(request["index"])
    context = vf.ModelContext(
        model="engine", client=vf.TrainClientConfig(base_url=ENGINE, api_key_var="NO_KEY"), sampling=vf.SamplingConfig()
    )
    minted: list[str] = []

    def enter(trace: Any) -> None:
        State.calls[trace.id] = (call, trace.id)
        minted.append(trace.id)

    try:
        episode = await State.env.run_slot(RunSlot(task), context, on_trace=enter)
    finally:
        for name in minted:
            State.calls.pop(name, None)
    about = task.data.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    kept = [trace for trace in episode.traces if trace.agent.trainable]
    several = len({trace.agent.name for trace in episode.traces}) > 1 or len(kept) > 1
    made = [entry_of(trace, several) for trace in kept]
    if episode.errors and all("error" not in entry for entry in made):
        error = error_of(episode.errors[-1])
        made = [{**entry, "error": error} for entry in made] or [{"branches": [], "reward": None, "error": error}]
    return {"task": about, "rollouts": made}


def entry_of(trace: Any, several: bool) -> dict[str, Any]:
    """A rollout for the engine. several: has the episode others, so that whose it is must be said?"""
    scores = {name: item.score for name, item in trace.rewards.items() if item is not None}
    entry: dict[str, Any] = {
        "id": trace.id,
        "branches": [[message_to_wire(message) for message in branch.messages] for branch in trace.branches],
        "reward": trace.reward,
        "metrics": {**{name: value for name, value in trace.metrics.items() if value is not None}, **scores},
        "role": trace.agent.name if several else None,
        "stop": stop_of(trace),
        "info": {
            "stop_condition": trace.stop_condition,
            "weights": {name: item.weight for name, item in trace.rewards.items() if item is not None},
            **trace.info,
        },
    }
    if trace.errors and not trace.ok:
        entry["error"] = error_of(trace.errors[-1])
    return entry


def error_of(error: Any) -> dict[str, Any]:
    return {"type": error.type, "message": error.message, "model": error.type == "ProviderError"}


def stop_of(trace: Any) -> str | None:
    """Why it ended, where that is another reason than the last reply's."""
    if trace.calls and trace.calls[-1].error is not None and OVERFLOW in trace.calls[-1].error.message:
        return "context_length"
    return "step_limit" if trace.is_timeout or trace.stop_condition in LIMITS else None
