"""Small parts for engine tests: an environment, a backend that does what a test says, and their registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.plan import Execution, Plan
from atropos_cli.domain.run import RunSummary
from atropos_cli.io.groupfile import JsonlWriter, StdoutWriter, ZstWriter
from atropos_cli.rollout.planner import build_plan
from atropos_cli.rollout.runner import run_gen
from atropos_cli.sdk import Environment, Episode, Message, Rollout, Task, TaskStream, TokenSpan, reward, user
from atropos_cli.sdk.backends import Completion, GenerateRequest, Generation, InferenceBackend


@reward
def exact(task: Task, rollout: Rollout) -> float:
    """1.0 for the right text."""
    return float(rollout.text == task.answer)


class Adding(Environment):
    """Endless single-turn tasks: what is i + 1?"""

    name = "adding"
    rewards = (exact,)
    splits = ("train", "test")

    def tasks(self, split: str) -> TaskStream:
        return TaskStream(lambda i: Task(id=f"t{i}", prompt=(user(f"{i}+1"),), answer=str(i + 1)))


class Counting(Episode):
    """Three turns, then over."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.turns = 0
        self.closed = 0

    def reset(self) -> Sequence[Message]:
        return [user(f"start {self.task.id}")]

    async def step(self, reply: Message) -> Sequence[Message] | None:
        await asyncio.sleep(0)
        self.turns += 1
        return None if self.turns == 3 else [user(f"turn {self.turns}: {reply.text}")]

    def metrics(self) -> dict[str, float]:
        return {"turns": float(self.turns)}


class CountingEnvironment(Adding):
    name = "counting"

    def episode(self, task: Task) -> Episode:
        return Counting(task)


Answer = Callable[[GenerateRequest], Awaitable[Generation] | Generation]


def say(text: str | None, *, finish: str | None = "stop", n: int = 1, **message: Any) -> Generation:
    """A generation of n equal completions."""
    completion = Completion(message=Message(role="assistant", content=text, **message), finish_reason=finish)
    return Generation(completions=(completion,) * n, prompt_tokens=3)


def right(request: GenerateRequest) -> Generation:
    """The right answers to Adding's tasks."""
    number = int(request.messages[0].text.split("+")[0])
    return say(str(number + 1), n=request.n)


class FakeBackend(InferenceBackend):
    """Calls `answer`; counts requests and what is in flight; `alive` is what the probe says."""

    name = "fake"
    answer: Answer = staticmethod(right)
    alive = True

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        self.model = self.model or "fake-model"
        self.requests: list[GenerateRequest] = []
        self.in_flight = self.most = self.probes = 0
        FakeBackend.last = self

    last: FakeBackend

    async def generate(self, request: GenerateRequest) -> Generation:
        self.requests.append(request)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            answer = self.answer(request)
            return await answer if not isinstance(answer, Generation) else answer
        finally:
            self.in_flight -= 1

    async def probe(self) -> bool:
        self.probes += 1
        return self.alive


class _Registration:
    def __init__(self, kind: str, name: str, component: Any) -> None:
        self.kind, self.name, self.component = kind, name, component
        self.dist, self.version, self.file = "tests", "0", None

    def load(self) -> Any:
        return self.component


class StaticRegistry:
    """Just the components of these tests; observers are recorded."""

    def __init__(self, *components: type) -> None:
        self.components = {("writer", w.name): w for w in (JsonlWriter, ZstWriter, StdoutWriter)}
        for component in components:
            kind = "backend" if issubclass(component, InferenceBackend) else "environment"
            self.components[kind, component.name] = component  # type: ignore[attr-defined]
        self.observed: list[str] = []

    def find(self, kind: str, name: str, *, dist: str | None = None) -> _Registration:
        return _Registration(kind, name, self.components[kind, name])

    def families(self) -> frozenset[str]:
        return frozenset()

    def backend_for_model(self, model: str) -> None:
        return None

    def call_observers(self, hook: str, **arguments: Any) -> tuple[()]:
        self.observed.append(hook)
        return ()


class Bench:
    """A backend class of its own per test, and a run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = type("TestBackend", (FakeBackend,), {})
        self.environment: type[Environment] = Adding
        self.registry = StaticRegistry(Adding, CountingEnvironment, self.backend)

    def use(self, environment: type[Environment]) -> None:
        self.environment = environment
        self.registry.components["environment", environment.name] = environment

    def answer(self, function: Callable[[GenerateRequest], Any]) -> None:
        self.backend.answer = staticmethod(function)

    def plan(self, *, limit: int | None = 4, group_size: int = 2, execution: Any = None, **settings: Any) -> Plan:
        return build_plan(
            GenSettings(
                backend="fake",
                limit=limit,
                group_size=group_size,
                execution=Execution(**(execution or {})),
                **settings,
            ),
            self.environment.name,
            {},
            self.registry,  # type: ignore[arg-type]
        )

    def run(self, plan: Plan | None = None, **options: Any) -> RunSummary:
        return run_gen(plan or self.plan(), folder=self.folder, registry=self.registry, **options)  # type: ignore[arg-type]

    @property
    def requests(self) -> list[GenerateRequest]:
        return FakeBackend.last.requests

    def groups(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "groups.jsonl").read_bytes().splitlines()]

    def failures(self) -> list[dict[str, Any]]:
        path = self.folder / "failures.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def with_tokens(text: str, ids: Sequence[int], prompt: Sequence[int]) -> Generation:
    """One completion with token ids."""
    span = TokenSpan(ids=tuple(ids), mask=True, logprobs=tuple(-0.5 for _ in ids))
    message = Message(role="assistant", content=text, tokens=span)
    completion = Completion(message=message, finish_reason="stop", completion_tokens=len(ids))
    return Generation(completions=(completion,), prompt_ids=tuple(prompt), prompt_tokens=len(prompt))
