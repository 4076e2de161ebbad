"""Environments: where tasks come from and how a rollout of one is played."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, TypeVar, overload, runtime_checkable

from pydantic import BaseModel, ConfigDict, model_validator

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.finish import StopReason
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.messages import Message
from atropos_cli.domain.plan import Sampling
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.paths import home
from atropos_cli.ports.backend import Completion, Generation
from atropos_cli.ports.prompt import Prompt
from atropos_cli.ports.reward import Reward

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]


class Config(BaseModel):
    """Base of every component's options. Each field becomes a flag, a config key and an ATROPOS_* variable.

    Give each field a description: it is the help text. A path typed `Path` has its `~` expanded, wherever it
    came from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    @model_validator(mode="after")
    def _at_home(self) -> Self:
        for name, value in self.__dict__.items():
            if isinstance(value, Path | list | tuple | set | frozenset) and (found := _at_home(value)) != value:
                self.__dict__[name] = found
        return self


def _at_home(value: Any) -> Any:
    if isinstance(value, Path):
        return Path(home(str(value)))
    if isinstance(value, list | tuple | set | frozenset) and any(isinstance(item, Path) for item in value):
        return type(value)(_at_home(item) for item in value)
    return value


class TaskStream(Sequence[Task]):
    """Tasks made on demand by index, finite or endless, so that a resumed run skips done ones for free.

    make(i) must give the same task for the same i, in any process. length None means endless:
    iterating never stops and len() raises TypeError.
    """

    def __init__(self, make: Callable[[int], Task], length: int | None = None) -> None:
        self._make = make
        self.length = length

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("this task stream is endless")
        return self.length

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            raise TypeError("a task stream is indexed by one integer")
        if index < 0 or (self.length is not None and index >= self.length):
            raise IndexError(index)
        return self._make(index)

    def __iter__(self) -> Iterator[Task]:
        index = 0
        while self.length is None or index < self.length:
            yield self._make(index)
            index += 1


class RoleModel(Protocol):
    """The model that plays a role: a user, an opponent, a judge. See `Environment.roles`."""

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        sampling: Sampling | None = None,
        tools: Sequence[JsonDict] | None = None,
    ) -> Sequence[Completion]:
        """Exactly n completions, under the limits and retries of the role and the deadline of the group. Without tokens
        and finish reason: in a rollout their messages are not trained on."""

    async def reply(self, messages: Sequence[Message]) -> Message:
        """The message of one completion: ready to be shown to another model."""

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text by the role's tokenizer, without special tokens added."""

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probabilities of given tokens after a given prefix, by the role's model."""

    def describe(self) -> JsonDict:
        """Which model it is and how it is sampled: {"backend", "model", "sampling", ...}."""


class Episode(ABC):
    """One rollout of a task. Methods may be plain or async; the engine calls them one at a time.

    An exception fails this one rollout at stage "reset" or "environment" and no other.
    """

    prefill: str = ""
    """Text that the model's next reply begins with; it is part of the reply, and its tokens are not trained on."""

    choices: Sequence[str] = ()
    """Where there are any, the model's next reply is exactly one of these texts. Needs a backend that can do that."""

    tools: Sequence[JsonDict] = ()
    """OpenAI function schemas of the tools that the model may call in its next reply. Its calls come parsed."""

    tools_in_prompt: bool = False
    """Are the tools described in the messages? Requests then leave them out; calls are read all the same."""

    models: Mapping[str, RoleModel] = MappingProxyType({})
    """By role. Set by the engine before reset(); a role without a model of its own is played by the policy."""

    stop_reason: StopReason | None = None
    """Set to "step_limit" before returning None from step() when the episode was cut off."""

    @abstractmethod
    def reset(self) -> MaybeAwaitable[Sequence[Message]]:
        """The first messages for the model, usually system and user."""

    @abstractmethod
    def step(self, reply: Message) -> MaybeAwaitable[Sequence[Message] | None]:
        """Take the model's reply; return what it sees next, or None when the episode is over."""

    def malformed(self, reply: Message, fault: str) -> MaybeAwaitable[Sequence[Message] | None]:
        """Like step(), for a reply that calls tools in a way that cannot be read; fault is an error of `ToolParse`.

        Its `tool_calls` are those that the server found, if any: servers expect an answer to each. None is to be
        executed. By default the reply is an ordinary text.
        """
        return self.step(reply if reply.tool_calls is None else reply.replace(tool_calls=None))

    def result(self) -> JsonDict:
        """What rewards and reports should know of the finished episode; becomes `rollout.info`."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Numbers worth reporting; becomes `rollout.metrics`."""
        return {}

    def close(self) -> MaybeAwaitable[None]:
        """Free what the episode holds. Called exactly once, whatever happened before."""
        return None


class SingleTurn(Episode):
    """The default episode: show the prompt, take one reply."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def reset(self) -> Sequence[Message]:
        return self.task.prompt

    def step(self, reply: Message) -> None:
        return None


@runtime_checkable
class GroupContext(Protocol):
    """What the engine offers to an environment that rolls its own groups."""

    group_id: str
    group_size: int
    seed: int
    rng: random.Random
    sampling: Sampling
    models: Mapping[str, RoleModel]

    async def generate(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        sampling: Sampling | None = None,
        tools: Sequence[JsonDict] | None = None,
    ) -> Sequence[Completion]:
        """Exactly n completions of the messages, under the run's worker limit, retries and deadline.

        The tokens of each message hold the prompt's ids too, untrained, where the backend gives them: a rollout of
        (*messages, completion.message) can be trained on.
        """

    async def sample(
        self,
        messages: Sequence[Message],
        *,
        n: int = 1,
        sampling: Sampling | None = None,
        tools: Sequence[JsonDict] | None = None,
        prefill: str = "",
        seed: int | None = None,
    ) -> Sequence[Generation]:
        """As generate, but with what the backend said of the prompt: generations that hold n completions together.

        prefill: the replies begin with this text, which is not trained on. Not every backend can do that. seed: of
        the request, where its place among the group's requests must not decide it.

        The tokens of a message are the sampled ones alone; the prompt's ids stand in the generation.
        """

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probabilities of given tokens after a given prefix; same length as continuation_ids."""

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text by the model's own tokenizer, without special tokens added."""

    async def score(self, task: Task, rollouts: Sequence[Rollout]) -> tuple[Rollout, ...]:
        """The rollouts with the run's rewards filled in."""

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
        """A group with these advantages, or such as the plan says. All but the task's final one need last=False."""

    def opponents(self) -> Sequence[str]:
        """The roles that models of their own play; any other is played by the policy."""

    def sampling_of(self, role: str) -> Sampling:
        """How the policy is sampled when it plays a role."""

    def roll_independent(self, environment: Environment, task: Task) -> AsyncIterator[ScoredGroup]:
        """The default: group_size independent episodes, one group."""

    def roll_games(self, environment: GameEnvironment, task: Task) -> AsyncIterator[ScoredGroup]:
        """group_size games; one group with a rollout for each seat of each game that the policy plays."""


class Environment(ABC):
    """A source of tasks, and the rules by which a rollout is played and rewarded.

    Class attributes: `name` (as on the command line), `Config` (its options), `rewards` (Reward
    objects, or installed rewards as "NAME" or "NAME=WEIGHT"; weight 0 reports without training),
    `roles` (names of other models that it asks, with the options --role.NAME.OPTION).
    One object serves a whole run; it is opened once and may be asked for tasks and episodes
    concurrently from one event loop.
    """

    name: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = Config
    rewards: ClassVar[Sequence[Reward | str]] = ()
    roles: ClassVar[Sequence[str]] = ()
    splits: ClassVar[Sequence[str]] = ("train",)
    default_limit: ClassVar[int] = 100
    """Tasks a run takes when the stream is endless and no --limit is given."""
    alone: ClassVar[bool] = False
    """Is each rollout played from its reset to its end, whatever the others of its group do? For episodes that hold
    something of which there may be fewer than rollouts, such as a session of a server. First requests are not shared.
    """
    without_model: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Options that name who plays instead of a language model, each with the backend that the plan then has."""
    trainer: ClassVar[str | None] = None
    """The trainer that `train` takes for it where neither a model nor a trainer is named."""
    prompt: Prompt = Prompt()
    """The texts of its messages, `sdk.prompts.packaged_prompt(__file__)`; --prompt FILE replaces them."""

    def __init__(self, config: Any) -> None:
        self.config = config

    if not TYPE_CHECKING:  # for a type checker each attribute would be there

        def __getattr__(self, name: str) -> Any:
            why = ": its __init__() does not call super().__init__(config)" if name == "config" else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{why}")

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start what the environment needs (processes, pools). Called once, before any task."""

    async def close(self) -> None:
        """Stop everything open() started. Called once, also after errors."""

    @abstractmethod
    def tasks(self, split: str) -> Iterable[Task]:
        """The tasks of a split, in a fixed order. Return a Sequence or TaskStream when an index is cheap."""

    def episode(self, task: Task) -> Episode:
        """A fresh rollout of the task."""
        return SingleTurn(task)

    def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """Override when a group is not group_size independent episodes (alternatives per turn, self-play)."""
        return context.roll_independent(self, task)

    @classmethod
    def varied_groups(cls, config: Any, others: Collection[str]) -> str | None:
        """Why a task does not make exactly one group of `group_size` rollouts, in a few words; None where it does.

        Some trainers take nothing else, and say so before the first rollout. Asked without an object of the class.
        others: the roles with a model of their own, which make no rollouts.
        """
        return None

    @classmethod
    def rewards_for(cls, config: Any) -> Sequence[Reward | str]:
        """The rewards with these options, where they decide on them: the same in each process. In `rewards` are those
        of the defaults, and all that have options of their own."""
        return cls.rewards

    def requests_at_once(self, group_size: int) -> int:
        """How many requests one group of several turns keeps in flight: decides how many groups are open at a time."""
        return group_size

    def prefetch(self) -> Iterable[str]:
        """Fetch what its tasks need from a network, for `atropos prefetch`; a line per thing that is here now."""
        return ()

    def validate(self, task: Task) -> MaybeAwaitable[bool | None]:
        """Does the task's gold answer earn full marks? None when there is nothing to check. Needs no model."""
        return None


class Game(ABC):
    """One game of several players, each of whom sees messages of their own. reset(), step(), close() may be async.

    Each player's side becomes a rollout: the replies in it are that player's, all else is not trained on. A player with
    a model of its own (--role.NAME.model) is not trained and makes no rollout.
    """

    players: Sequence[str]
    """The roles, in order of their seats."""

    stop_reason: StopReason | None = None
    """Set to "step_limit" before returning None from step() when the game was cut off."""

    @abstractmethod
    def reset(self) -> MaybeAwaitable[Mapping[str, Sequence[Message]]]:
        """The first messages for each player."""

    @abstractmethod
    def turn(self) -> str:
        """Who replies next."""

    @abstractmethod
    def step(self, player: str, reply: Message) -> MaybeAwaitable[Mapping[str, Sequence[Message]] | None]:
        """Take a player's reply; return what each player sees next (who is left out, nothing), or None at the end.

        The next player must see something before the reply, unless it is the first.
        """

    def result(self, player: str) -> JsonDict:
        """What rewards should know of the finished game; becomes `rollout.info`."""
        return {}

    def metrics(self, player: str) -> dict[str, float]:
        """Numbers worth reporting; becomes `rollout.metrics`."""
        return {}

    def close(self) -> MaybeAwaitable[None]:
        """Free what the game holds. Called exactly once, whatever happened before."""
        return None


class GameEnvironment(Environment):
    """An environment of games: the policy plays against itself, or against models of other roles."""

    @abstractmethod
    def game(self, task: Task) -> Game:
        """A fresh game of the task."""

    @classmethod
    def varied_groups(cls, config: Any, others: Collection[str]) -> str | None:
        """A game has a rollout for each side that the policy plays; with no other model, for all."""
        return None if others else "a game makes a rollout for each player"

    def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """group_size games."""
        return context.roll_games(self, task)
