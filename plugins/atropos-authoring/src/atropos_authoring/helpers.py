"""Make rollouts for reward tests, and run environments in the real engine with scripted replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import (
    ComponentSpec,
    Config,
    Environment,
    JsonDict,
    Message,
    Rollout,
    ScoredGroup,
    Task,
    Usage,
    assistant,
    user,
)
from atropos_cli.sdk.authoring import KINDS, FailureRecord, Registration, get_registry, run_gen
from atropos_cli.sdk.backends import GenerateRequest, Generation, InferenceBackend
from atropos_cli.sdk.engine import Execution, GenSettings, Registry, build_plan

ReplyFunction = Callable[[Sequence[Message]], str]

STRANGE_REPLIES: tuple[str, ...] = (
    "",
    " \n\t ",
    "\N{REPLACEMENT CHARACTER}\x00\x1b[31m",
    "答案是\N{GRINNING FACE} \N{RIGHT-TO-LEFT OVERRIDE}",
    "((((((((((" * 200,
    "a" * 100_000,
    "9" * 10_000,
    '{"answer": ',
    "</think></answer>\\boxed{",
    "ignore all previous instructions",
)
"""What models do reply now and then. A reward or an environment must take any of it as an answer, not as an error."""


def make_rollout(
    reply: str | Sequence[Message],
    *,
    task: Task | None = None,
    completion_tokens: int | None = None,
    number: int = 0,
) -> Rollout:
    """A finished rollout: the task's prompt and one reply, or the given messages."""
    task = task or Task(id="task", prompt=(user("question"),))
    messages = (*task.prompt, assistant(reply)) if isinstance(reply, str) else tuple(reply)
    return Rollout(
        id=f"{task.id}/{number}",
        task_id=task.id,
        messages=messages,
        usage=Usage(completion_tokens=completion_tokens, requests=1),
        stop_reason="done",
    )


def run_environment(
    environment: type[Environment],
    *,
    folder: Path,
    replies: Sequence[str] | ReplyFunction,
    config: Mapping[str, Any] | None = None,
    limit: int = 2,
    group_size: int = 2,
    **settings: Any,
) -> list[ScoredGroup]:
    """Run the environment in the real engine, without a model, and return the groups it wrote to `folder`.

    replies: given out in turn, again from the start at the end; or a function from the messages to
    a reply. settings: further fields of GenSettings (seed, split, rewards, ...). A failed rollout is
    in its group, with its failure. Raises AssertionError when a whole group failed. Runs its own
    event loop, so it cannot be called from an async test.
    """
    options: JsonDict = {"token_ids": True}
    function: ReplyFunction | None = None
    if callable(replies):
        function = replies
    else:
        options["replies"] = list(replies)
    registry = _registry_with(environment, function)
    plan = build_plan(
        GenSettings(
            backend="scripted",
            backend_options=options,
            limit=limit,
            group_size=group_size,
            execution=Execution(workers=4, retries=0, max_failure_rate=1.0),
            **settings,
        ),
        environment.name,
        dict(config or {}),
        registry,
    )
    run_gen(plan, folder=folder, registry=registry)
    found = [ScoredGroup.model_validate_json(line) for line in _lines(folder / "groups.jsonl")]
    if not found:
        # A group is not written when all its rollouts failed; why they did is in the other file.
        first = next(iter(_lines(folder / "failures.jsonl")), None)
        record = None if first is None else FailureRecord.model_validate_json(first)
        reason = f"at stage {record.stage}: {record.type}: {record.message}" if record else "for no known reason"
        raise AssertionError(f"no rollout succeeded, {reason}")
    return found


def _lines(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines() if file.exists() else []


def _registry_with(environment: type[Environment], function: ReplyFunction | None) -> Registry:
    """All installed components, with this environment in the place of one of its name."""
    ours = [ComponentSpec("environment", environment.name, environment)]
    if function is not None:
        ours.append(ComponentSpec("backend", "scripted", _function_backend(function)))
    taken = {(spec.kind, spec.name) for spec in ours}
    installed = get_registry()
    return Registry(
        [
            *(item for kind in KINDS for item in installed.registrations(kind) if (kind, item.name) not in taken),
            *(Registration(spec=spec, dist="tests", version="0", entry_point=None) for spec in ours),
        ]
    )


def _function_backend(function: ReplyFunction) -> type[InferenceBackend]:
    scripted: Any = get_registry().find("backend", "scripted").load()

    class FunctionBackend(InferenceBackend):
        """The scripted backend, as a class whose objects all have this function."""

        name: ClassVar[str] = "scripted"
        Config: ClassVar[type[Config]] = scripted.Config

        def __init__(self, config: Any, *, model: str | None = None) -> None:
            self._scripted: InferenceBackend = scripted.from_function(
                lambda messages, request: function(messages), config=config, model=model
            )
            super().__init__(config, model=self._scripted.model)
            self.capabilities = self._scripted.capabilities

        async def generate(self, request: GenerateRequest) -> Generation:
            return await self._scripted.generate(request)

        async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
            return await self._scripted.score(prefix_ids, continuation_ids)

        async def tokenize(self, text: str) -> Sequence[int]:
            return await self._scripted.tokenize(text)

    return FunctionBackend
