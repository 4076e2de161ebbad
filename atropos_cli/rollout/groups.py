"""Play one group: the only place that asks the backend for text and the episodes for their next step.

Every failure is caught at the stage where it happens and becomes data of that one rollout. Only errors
that concern the whole run (Abort: a dead backend; Draining: being stopped) leave this module.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Unpack

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import ScoredGroup, make_group_id
from atropos_cli.domain.messages import Message, TokenSpan
from atropos_cli.domain.plan import Plan, Sampling
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.errors import ContextOverflow, PluginError
from atropos_cli.ports import asking
from atropos_cli.ports.backend import Completion, GenerateRequest, Generation
from atropos_cli.ports.environment import Environment, GameEnvironment, RoleModel, SingleTurn
from atropos_cli.ports.reward import Reward
from atropos_cli.redaction import redacted
from atropos_cli.rollout.advantages import advantages as advantages_of
from atropos_cli.rollout.advantages import decided
from atropos_cli.rollout.asking import exactly
from atropos_cli.rollout.dispatch import Dispatcher, GroupBudget, GroupDeadline
from atropos_cli.rollout.episodes import EpisodeState, close_episode, together, with_tools
from atropos_cli.rollout.games import play_games
from atropos_cli.rollout.mixture import Mixture, member_name, relabelled
from atropos_cli.rollout.prefill import Wishes, turn_seed, whole
from atropos_cli.rollout.returned import episode_of, messages_of
from atropos_cli.rollout.roles import Role, RoleModels
from atropos_cli.rollout.scoring import Scorer
from atropos_cli.rollout.stopping import as_failures, awaited
from atropos_cli.rollout.tokens import checked_ids, checked_logprobs, with_prompt
from atropos_cli.rollout.toolsources import OpenSource, with_sources

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """What all groups of a run share. roles: those that have a model of their own, or sampling.

    members: of a mixture, what the groups of each member share, by its name.
    """

    plan: Plan
    digest: str
    env_name: str
    dispatcher: Dispatcher
    scorer: Scorer
    roles: Mapping[str, Role] = field(default_factory=dict)
    tools: Sequence[OpenSource] = ()
    members: Mapping[str, Run] = field(default_factory=dict)

    def of(self, task: Task) -> Run:
        """What the groups of a task share."""
        return self.members[member_name(task.id)] if self.members else self


def run_of(
    plan: Plan,
    environment: Environment,
    rewards: Sequence[Reward],
    dispatcher: Dispatcher,
    roles: Mapping[str, Role],
    tools: Sequence[OpenSource],
) -> Run:
    """Of an environment, or of a mixture with its members."""
    members = {
        name: Run(
            plan.replace(group_size=part.member.group_size or plan.group_size),
            plan.digest,
            name,
            dispatcher,
            Scorer(part.rewards),
            roles,
            tools,
        )
        for name, part in (environment.parts.items() if isinstance(environment, Mixture) else ())
    }
    return Run(plan, plan.digest, environment.name, dispatcher, Scorer(rewards), roles, tools, members)


class GroupRoller:
    """The GroupContext of one task, and the default way to roll a group."""

    def __init__(self, run: Run, index: int) -> None:
        plan = run.plan
        self._run = run
        self.plan = plan
        self.index = index
        self.group_id = make_group_id(run.digest, index)
        self.group_size = plan.group_size
        self.sampling = plan.sampling
        self.seed = random.Random(f"{plan.seed}/{index}").getrandbits(31)
        self.rng = random.Random(self.seed)
        self.budget: GroupBudget = run.dispatcher.budget()
        self.models: Mapping[str, RoleModel] = self.models_of("group")
        self._dispatcher = run.dispatcher
        self._scorer = run.scorer
        self._samples = 0
        self._offered_tools = False
        self.over = 0
        """Rollouts that have ended; their group is scored when all have."""
        self.on_first_request: Callable[[], object] = bool

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        sampling: Sampling | None = None,
        tools: Sequence[JsonDict] | None = None,
    ) -> Sequence[Completion]:
        """Exactly n completions; see GroupContext."""
        generations = await self.sample(messages, n=n, sampling=sampling, tools=tools)
        return [completion for generation in generations for completion in with_prompt(generation, messages)]

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probabilities of given tokens; see GroupContext."""
        backend = self._dispatcher.backend
        values = await self._dispatcher.call(lambda: backend.score(prefix_ids, continuation_ids), self.budget)
        return checked_logprobs(values, len(continuation_ids), backend.name)

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text; see GroupContext."""
        backend = self._dispatcher.backend
        return checked_ids(await self._dispatcher.call(lambda: backend.tokenize(text), self.budget), backend.name)

    async def score(self, task: Task, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts with the run's rewards."""
        token, seconds = asking.current.set(self.models), self._dispatcher.scoring_time(self.budget)
        try:
            return await self._scorer.score(task, rollouts, seconds)
        finally:
            asking.current.reset(token)

    def group(
        self,
        task: Task,
        rollouts: Sequence[Rollout],
        *,
        episode_id: str | None = None,
        turn: int | None = None,
        last: bool = True,
        advantages: Sequence[float | None] | None = None,
    ) -> ScoredGroup:
        """A group with advantages; see GroupContext."""
        return ScoredGroup(
            group_id=make_group_id(self._run.digest, self.index, turn),
            last=last,
            env=self._run.env_name,
            task=task,
            rollouts=tuple(rollouts),
            advantages=self._advantages(rollouts) if advantages is None else tuple(advantages),
            model=redacted(self.plan.model or ""),
            seed=self.seed,
            episode_id=episode_id,
            turn=turn,
        )

    def _advantages(self, rollouts: Sequence[Rollout]) -> tuple[float | None, ...] | None:
        return advantages_of(self.plan.advantage, [item.reward for item in rollouts], [item.role for item in rollouts])

    def opponents(self) -> Sequence[str]:
        """The roles that models of their own play."""
        return [name for name, role in self._run.roles.items() if role.dispatcher is not None]

    def sampling_of(self, role: str) -> Sampling:
        """Of the policy when it plays the role."""
        found = self._run.roles.get(role)
        return self.sampling if found is None else found.ref.sampling

    async def roll_games(self, environment: GameEnvironment, task: Task) -> AsyncIterator[ScoredGroup]:
        """group_size games; see GroupContext."""
        rollouts = await play_games(self, environment, task)
        yield self.group(task, await self.score(task, rollouts))

    async def roll(self, environment: Environment, task: Task) -> tuple[ScoredGroup, ...]:
        """All groups of the task. Raises what the environment raises, and ValueError when it left out the last one."""
        rolls, own = environment.own(task) if isinstance(environment, Mixture) else (environment, task)
        with as_failures():
            groups = [group async for group in rolls.roll_group(own, self)]
        if self._run.tools and not self._offered_tools:
            raise PluginError(f"{rolls.name} plays its groups itself, without --tools", hint="drop --tools")
        if not groups or not groups[-1].last:
            raise ValueError(f"roll_group ended without a last group ({len(groups)} groups)")
        return tuple(groups) if own is task else relabelled(groups, task)

    async def roll_independent(self, environment: Environment, task: Task) -> AsyncIterator[ScoredGroup]:
        """group_size independent episodes of the task, one group; half of them where these decide an adaptive one."""
        first = -(-self.group_size // 2) if self.plan.selection.adaptive else self.group_size
        rollouts, task = await self._roll_some(environment, task, range(first))
        scored = await self.score(task, rollouts)
        if first < self.group_size and not decided([rollout.reward for rollout in scored]):
            more, task = await self._roll_some(environment, task, range(first, self.group_size))
            if self._scorer.compares:
                scored = await self.score(task, [*rollouts, *more])
            else:
                scored = (*scored, *await self.score(task, more))
        yield self.group(task, scored)

    async def _roll_some(
        self, environment: Environment, task: Task, numbers: Sequence[int]
    ) -> tuple[list[Rollout], Task]:
        """The rollouts of these numbers, and the task with the tools that they had."""
        states = await self._open_episodes(environment, task, numbers)
        if environment.alone:
            return await together(self._alone(state, task) for state in states), with_tools(task, states)
        try:
            await together([waiting for state in states if (waiting := self._reset(state)) is not None])
            await self._play(states)
            self.over = numbers[-1] + 1
            rollouts = [state.rollout(self.group_id, task) for state in states]
            return rollouts, with_tools(task, states)
        finally:
            await together([waiting for state in states if (waiting := close_episode(state)) is not None])

    async def _alone(self, state: EpisodeState, task: Task) -> Rollout:
        """Play it from its reset to its end, and close it at once: another may wait for its resources."""
        try:
            await (self._reset(state) or asyncio.sleep(0))
            await self._play([state])
            return state.rollout(self.group_id, task)
        finally:
            await (close_episode(state) or asyncio.sleep(0))

    async def _open_episodes(self, environment: Environment, task: Task, numbers: Sequence[int]) -> list[EpisodeState]:
        states: list[EpisodeState] = []
        self._offered_tools = True
        for number in numbers:
            try:
                episode = with_sources(episode_of(environment, task), self._run.tools)
                states.append(EpisodeState(number, episode))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
                state = EpisodeState(number, SingleTurn(task))
                state.fail("reset", error, environment.episode)
                states.append(state)
        return states

    def models_of(self, asker: int | str) -> RoleModels:
        """The models by role, for the group or one of its rollouts."""
        run = self._run
        return RoleModels(run.roles, run.dispatcher, self.budget, run.plan.sampling, f"{self.seed}/{asker}")

    def _reset(self, state: EpisodeState) -> Coroutine[Any, Any, None] | None:
        """Begin the episode; what is left to await of it, for a reset() that is asynchronous."""
        if state.over:
            return None
        try:
            state.episode.models = self.models_of(state.number)
            messages = state.episode.reset()
            if inspect.isawaitable(messages):
                return self._reset_later(state, messages)
            state.messages = messages_of(state.episode, "reset", messages)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
            state.fail("reset", error, state.episode.reset)
        return None

    async def _reset_later(self, state: EpisodeState, messages: Awaitable[Any]) -> None:
        try:
            state.messages = messages_of(state.episode, "reset", await self.in_time(messages))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
            state.fail("reset", error, state.episode.reset)

    async def _play(self, states: list[EpisodeState]) -> None:
        """Ask for the first replies together where all see the same, then let every rollout go its own way."""
        alive = [state for state in states if not state.over]
        if not alive:
            return
        first = alive[0].asks()
        shared = len(alive) > 1 and all(state.asks() == first for state in alive[1:])
        if shared:
            await self._first_replies(alive)
        if any(not state.over for state in alive):
            await together(self._continue(state) for state in alive if not state.over)

    async def _first_replies(self, alive: list[EpisodeState]) -> None:
        before = self.budget.requests, self.budget.retries
        try:
            asked, *_ = [state.wishes() for state in alive]
            generations = await self.sample(alive[0].messages, n=len(alive), **asked)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the rollouts' failure
            for state in alive:
                state.fail("generate", error)
            return
        finally:
            alive[0].requests += self.budget.requests - before[0]
            alive[0].retries += self.budget.retries - before[1]
        span: TokenSpan | None = None
        prompt_ids: tuple[int, ...] | None = None
        waiting = iter(alive)
        for generation in generations:
            for completion in generation.completions:
                state = next(waiting)
                if span is None or generation.prompt_ids is not prompt_ids:
                    prompt_ids = generation.prompt_ids
                    span = state.trail.prompt_span(prompt_ids)
                else:
                    state.trail.prompt_span(prompt_ids)
                reply = state.take(generation, completion, span)
                if isinstance(state.episode, SingleTurn):
                    await self._step(state, reply)

    async def _continue(self, state: EpisodeState) -> None:
        """Play one rollout to its end: step with the reply at hand, ask for the next one."""
        while True:
            if state.messages[-1].role == "assistant":
                await self._step(state, state.messages[-1])
            if state.over:
                self.over += 1
                return
            before = self.budget.retries
            try:
                asked = state.wishes(turn_seed(self.seed, state.number, len(state.messages)))
                generation = (await self.sample(state.messages, **asked))[0]
            except ContextOverflow as error:
                self._overflow(state, error)
                return
            except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the rollout's failure
                state.fail("generate", error)
                return
            finally:
                state.requests += 1
                state.retries += self.budget.retries - before
            state.take(generation, generation.completions[0], state.trail.prompt_span(generation.prompt_ids))

    def _overflow(self, state: EpisodeState, error: ContextOverflow) -> None:
        """An episode that outgrows the context ends truncated and keeps its turns; with no turn it is a failure."""
        if any(message.role == "assistant" for message in state.messages):
            state.stop = "context_length"
            state.over = True
        else:
            state.fail("generate", error)

    async def _step(self, state: EpisodeState, reply: Message) -> None:
        try:
            read = state.read(reply)
            method = "step" if read.fault is None else "malformed"
            episode = state.episode
            result = episode.step(read.message) if read.fault is None else episode.malformed(read.message, read.fault)
            if inspect.isawaitable(result):
                result = await self.in_time(result)
            if result:
                result = messages_of(state.episode, method, result)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is this rollout's failure
            state.fail("environment", error, state.episode.step)
            return
        if result is None:
            state.over = True
            state.stop = state.episode.stop_reason or state.stop or "done"
        elif not result:
            problem = ValueError("step() returned no message; None ends an episode")
            state.fail("environment", problem, state.episode.step)
        else:
            state.messages.extend(result)

    async def in_time(self, awaitable: Awaitable[T]) -> T:
        """Await a plugin's answer no longer than the group has time left."""
        seconds = max(0.0, self.budget.deadline - self._dispatcher.active_time())
        return await awaited(awaitable, seconds, GroupDeadline)

    async def sample(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        sampling: Sampling | None = None,
        **asked: Unpack[Wishes],
    ) -> list[Generation]:
        """Generations with exactly n completions (see GroupContext): one request, or single ones where n is ignored."""
        self.on_first_request()
        tools = asked.get("tools")
        request = GenerateRequest(
            messages=tuple(messages),
            n=n,
            sampling=sampling or self.sampling,
            seed=self._next_seed(n) if (seed := asked.get("seed")) is None else seed,
            tools=None if tools is None else tuple(tools),
            logprobs=self.plan.logprobs,
            prefill=asked.get("prefill", ""),
            choices=tuple(asked.get("choices", ())),
        )
        generations = await exactly(self._dispatcher, request, self.budget, lambda: self._next_seed(1))
        return [whole(generation, request.prefill) for generation in generations] if request.prefill else generations

    def _next_seed(self, n: int) -> int:
        seed = (self.seed + self._samples) & 0x7FFFFFFF
        self._samples += n
        return seed
