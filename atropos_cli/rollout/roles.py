"""Models by role: opened with the run, asked by episodes and environments under limits of their own.

A role without a model of its own is played by the policy. Requests never carry the tokens of a rollout: another model
has other ones, and a role sees the conversation from another side.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

from atropos_cli.config.buckets import role_prefix
from atropos_cli.config.places import PREFIX
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.domain.plan import Plan, RoleRef, Sampling
from atropos_cli.errors import AtroposError, BackendError, ConfigError
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.backend import Completion, GenerateRequest, InferenceBackend
from atropos_cli.ports.environment import RoleModel
from atropos_cli.rollout.asking import exactly
from atropos_cli.rollout.backends import close_part, make_backend, open_backend
from atropos_cli.rollout.costs import Ledger
from atropos_cli.rollout.dispatch import Dispatcher, EventSink, GroupBudget
from atropos_cli.rollout.replycache import ReplyCache, cache_folder, identity
from atropos_cli.rollout.stopping import Abort
from atropos_cli.rollout.tokens import checked_ids, checked_logprobs

E = TypeVar("E", bound=AtroposError)
T = TypeVar("T")
_OPTION = re.compile(r"--(model|base-url|api-key-env|backend|max-tokens|temperature|top-p)(?![\w.-])")


@dataclass(frozen=True, slots=True)
class Role:
    """An open role. dispatcher None: the policy plays it."""

    name: str
    ref: RoleRef
    dispatcher: Dispatcher | None = None

    def describe(self, policy: str | None) -> JsonDict:
        """For the summary: which model, asked in which way."""
        if self.dispatcher is None:
            return {"model": policy, "policy": True}
        counts: JsonDict = {"requests": self.dispatcher.requests, "retries": self.dispatcher.retries}
        return {**self.dispatcher.backend.describe(), "model": self.dispatcher.backend.model, **counts}


@dataclass(frozen=True, slots=True)
class Opening:
    """Who hears of waiting and when to stop. copies: opened backends of the roles that copies of the policy play."""

    tell: EventSink
    stop: asyncio.Event
    copies: Mapping[str, InferenceBackend] = field(default_factory=dict)


async def open_roles(
    plan: Plan,
    registry: Registry,
    ledger: Ledger,
    opening: Opening,
    stack: contextlib.AsyncExitStack,
) -> dict[str, Role]:
    """The roles of a plan, their backends open until the stack closes. Raises Abort and ConfigError."""
    roles: dict[str, Role] = {}
    for name, ref in plan.roles.items():
        limits = {"workers": ref.workers, "retries": ref.retries, "request_timeout": ref.request_timeout}
        execution = plan.execution.replace(**limits)
        tell = _told_of(name, opening.tell)
        if ref.refresh is not None:
            backend, mine = _copy_of(name, opening.copies), plan
        elif ref.backend is None:
            roles[name] = Role(name, ref)
            continue
        else:
            mine = plan.replace(backend=ref.backend, model=ref.model, sampling=ref.sampling, execution=execution)
            backend = make_backend(mine, registry, secrets=f"{PREFIX}{role_prefix(name)}")
            stack.push_async_callback(close_part, backend)
            try:
                await open_backend(backend, mine, tell, opening.stop)
            except Abort as abort:
                raise Abort(error_of(name, abort.error)) from abort
            ledger.check(backend)
        dispatcher = Dispatcher(backend, execution, tell)
        stack.push_async_callback(dispatcher.close)
        dispatcher.ledger = ledger
        if (folder := cache_folder(plan)) is not None:
            dispatcher.cache = ReplyCache(folder, await identity(backend, mine), execution.cache_size)
            stack.callback(dispatcher.cache.close)
        roles[name] = Role(name, ref, dispatcher)
    return roles


def _copy_of(name: str, copies: Mapping[str, InferenceBackend]) -> InferenceBackend:
    """The opened backend of a copy of the policy. Raises ConfigError outside a training."""
    if name not in copies:
        raise ConfigError(
            f"--role.{name}.refresh is for train: here the policy does not change",
            hint=f"leave it out, or name a checkpoint: --role.{name}.model FOLDER",
        )
    return copies[name]


def described(roles: Mapping[str, Role], policy: str | None) -> dict[str, JsonDict]:
    """All roles, for the summary."""
    return {name: role.describe(policy) for name, role in roles.items()}


def error_of(role: str, error: E) -> E:
    """The error with the role in its message, and the role's own options in its hint."""
    found = copy.copy(error)
    found.message = f"role {role}: {error.message}"
    found.args = (found.message,)
    found.hint = _OPTION.sub(rf"--role.{role}.\1", error.hint) if error.hint else None
    return found


def _told_of(role: str, on_event: EventSink) -> EventSink:
    return lambda kind, message: on_event(kind, f"role {role}: {message}")


class RoleModels(Mapping[str, RoleModel]):
    """What an episode or a group sees of the roles. Any other name is the policy with the run's sampling."""

    def __init__(
        self, roles: Mapping[str, Role], policy: Dispatcher, budget: GroupBudget, sampling: Sampling, seed: str
    ) -> None:
        self._roles = roles
        self._policy = policy
        self._budget = budget
        self._sampling = sampling
        self._seed = seed
        self._models: dict[str, RoleModel] = {}

    def __getitem__(self, name: str) -> RoleModel:
        if name not in self._models:
            role = self._roles.get(name) or Role(name, RoleRef(sampling=self._sampling))
            self._models[name] = _Model(role, self._policy, self._budget, f"{self._seed}/{name}")
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._roles)

    def __len__(self) -> int:
        return len(self._roles)


@dataclass(slots=True)
class _Model:
    """One role, asked by one episode or group."""

    role: Role
    policy: Dispatcher
    budget: GroupBudget
    seed: str
    asked: int = 0
    own: GroupBudget | None = field(default=None, repr=False)

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        sampling: Sampling | None = None,
        tools: Sequence[JsonDict] | None = None,
    ) -> Sequence[Completion]:
        """See RoleModel."""
        dispatcher = self._dispatcher
        request = GenerateRequest(
            messages=tuple(_without_tokens(message) for message in messages),
            n=n,
            sampling=sampling or self.role.ref.sampling,
            seed=self._next_seed(),
            tools=None if tools is None else tuple(tools),
            logprobs="off",
        )
        line = f"{dispatcher.backend.model} ({self.role.name})"
        with self._naming_the_role(dispatcher):
            found = await exactly(dispatcher, request, self._limits(dispatcher), self._next_seed, line=line)
        return [_not_ours(completion) for generation in found for completion in generation.completions][:n]

    async def reply(self, messages: Sequence[Message]) -> Message:
        """See RoleModel."""
        return (await self.generate(messages))[0].message

    async def tokenize(self, text: str) -> Sequence[int]:
        """See RoleModel."""
        found = await self._called(lambda backend: backend.tokenize(text))
        return checked_ids(found, self._dispatcher.backend.name)

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """See RoleModel."""
        values = await self._called(lambda backend: backend.score(prefix_ids, continuation_ids))
        return checked_logprobs(values, len(continuation_ids), self._dispatcher.backend.name)

    def describe(self) -> JsonDict:
        """See RoleModel."""
        backend, sampling = self._dispatcher.backend, self.role.ref.sampling
        return {**backend.describe(), "model": backend.model, "sampling": sampling.model_dump(mode="json")}

    @property
    def _dispatcher(self) -> Dispatcher:
        return self.role.dispatcher or self.policy

    async def _called(self, call: Callable[[InferenceBackend], Awaitable[T]]) -> T:
        """Another request than for a reply, under the same limits and retries."""
        dispatcher = self._dispatcher
        with self._naming_the_role(dispatcher):
            return await dispatcher.call(lambda: call(dispatcher.backend), self._limits(dispatcher))

    @contextlib.contextmanager
    def _naming_the_role(self, dispatcher: Dispatcher) -> Iterator[None]:
        """Errors of a model of its own name the role; those of the policy are the run's."""
        try:
            yield
        except Abort as abort:
            if dispatcher is self.policy:
                raise
            raise Abort(error_of(self.role.name, abort.error)) from abort
        except BackendError as error:
            if dispatcher is self.policy:
                raise
            raise error_of(self.role.name, error) from error

    def _limits(self, dispatcher: Dispatcher) -> GroupBudget:
        """Retries of its own, and what the group has left of its time, by the clock of this dispatcher."""
        if dispatcher is self.policy:
            return self.budget
        if self.own is None:
            self.own = dispatcher.budget()
        self.own.deadline = dispatcher.active_time() + self.budget.deadline - self.policy.active_time()
        return self.own

    def _next_seed(self) -> int:
        self.asked += 1
        return int.from_bytes(blake2b(f"{self.seed}/{self.asked}".encode(), digest_size=4).digest(), "big") >> 1


def _not_ours(completion: Completion) -> Completion:
    """Its message without the marks of a reply that is trained on: whatever a rollout makes of it, it is not."""
    message = completion.message.model_copy(update={"tokens": None, "finish_reason": None})
    return completion.model_copy(update={"message": message})


def _without_tokens(message: Message) -> Message:
    if message.tokens is None:
        return message
    plain: Message = message.replace(tokens=None)
    return plain
