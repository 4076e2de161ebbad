"""Trainers: what turns scored groups or data sets into weights.

The engine owns everything around the optimiser: environments, rewards, evaluation, records, signals. It
hands them to a trainer as a TrainContext; the trainer owns model, loss, optimiser and checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.task import Task
from atropos_cli.domain.training import TrainPlan
from atropos_cli.ports.backend import NoOptions

Play = Callable[[Plan, Mapping[int, Task]], dict[int, list[ScoredGroup]]]
"""play(plan of a suite, tasks by place) -> the groups of each task."""


class TrainResult(Frozen):
    """Where the weights are (a folder that transformers can load) and how training went."""

    output: str
    steps: int
    metrics: dict[str, float] = Field(default_factory=dict)
    stopped: str | None = None
    """Why training ended before its last step: "interrupted", or the name of a stop rule; None: it did not."""


class TrainContext(Protocol):
    """What the engine offers a trainer. All methods are called from the trainer's own thread."""

    folder: Path
    """The run folder. Checkpoints go to folder/"checkpoints"/"step-N", the final weights to folder/"model"."""
    resume: bool
    """Go on from the newest complete checkpoint below `folder`; the engine has checked that the plan is the same."""
    tasks: int | None
    """How many live tasks there are; None when the stream is endless, or when there is no environment."""

    @property
    def stopping(self) -> bool:
        """True after SIGTERM or Ctrl-C: save a checkpoint, return TrainResult(stopped="interrupted")."""

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """Name the weights that roll() and evaluate() sample from. Call it once, before either.

        model: a torch module in this process, or what the trainer's own `backend` takes. The engine never changes it;
        a module is put into eval mode while rollouts run and back into its mode afterwards.
        """

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        """The groups of the live tasks at these places of the training order, with the weights as they are now.

        One list per place, in the given order; empty when every rollout of the task failed (counted and
        recorded by the engine). Token spans are as sampled. Blocks until all are there. The same place
        gives the same task in any process; places run from 0, past `tasks` they wrap around.

        With async_steps in the plan these are groups of the tasks that came out next, as many lists as places, of
        earlier weights maybe; no list at all when the run is asked to stop before there are enough.

        With --from these are the groups of the step's batch, of other weights maybe (TokenSpan.version); no list at
        all when the run is asked to stop before there is one. The same step gives the same batch after a resume.
        """

    def task(self, place: int) -> Task:
        """The live task at this place of the training order, for a trainer that has it played elsewhere."""

    def suite_tasks(self, suite: str) -> Mapping[int, Task]:
        """The tasks of an evaluation by place, for a trainer that has them played elsewhere."""

    def played(self, step: int, groups: Mapping[int, list[ScoredGroup]]) -> None:
        """Record the groups of an optimiser step by place, before report(): they were played elsewhere."""

    def evaluated(self, step: int, found: Mapping[str, Mapping[int, list[ScoredGroup]]]) -> dict[str, float]:
        """Record an evaluation that was played elsewhere with the weights of a step; returns eval/<suite>/<metric>.

        found: groups by suite and place. What is missing counts as failed.
        """

    def groups(self) -> Iterator[ScoredGroup]:
        """The stored groups of --data, in file order, read lazily."""

    def rows(self) -> Iterator[JsonDict]:
        """The rows of --data for sft and dpo, read lazily, run folders converted on the way.

        sft: {"messages"} or {"prompt", "completion"} or {"input_ids", "labels"}; dpo: {"prompt", "chosen", "rejected"}.
        """

    def rewards(self, rows: Sequence[JsonDict], completions: Sequence[str]) -> list[float | None]:
        """Score completions of --data rows by the run's --reward (grpo on data). None: the reward failed.

        rows: that of each completion; neighbours of the same row are scored as one group.
        """

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record one optimiser step: named numbers (names as TRL gives them: loss, reward, grad_norm, kl, entropy ...).

        Appends to metrics.jsonl, feeds trackers and health rules. Raises TrainerError when a stop rule says so.
        """

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        """Record some completions of a step: keys prompt, completion, extracted, expected, reward, correct."""

    def evaluate(self, step: int, *, final: bool = False, play: Play | None = None) -> dict[str, float]:
        """Run every suite with the weights as they are now; returns and records eval/<suite>/<metric> values.

        play: plays the tasks of a suite, for a trainer that has a policy of its own; its groups are kept in the run.
        A rollout whose info has a "video", a path below the run folder, is shown by trackers.

        A step is evaluated once: asked again, the same values come back. final: this is the last one.
        When the run is asked to stop meanwhile, the evaluation is broken off: {} comes back and the step counts as
        not evaluated.
        """

    def should_evaluate(self, step: int) -> bool:
        """Is an evaluation due after this optimiser step? (step 0 and the last one are the engine's own to ask for.)"""

    def is_best(self, step: int) -> bool:
        """Was the evaluation at this step the best so far (first suite's accuracy)? Such a checkpoint is kept."""

    def warn(self, message: str) -> None:
        """Tell the user something, and the run's log."""


class Trainer(ABC):
    """Trains by a plan. One object serves one run.

    check() is called before train(), must be fast (no model is loaded), and raises ConfigError with a hint
    for whatever cannot work: batch arithmetic, contradictory options.
    """

    name: ClassVar[str]
    methods: ClassVar[Sequence[str]] = ("grpo",)
    Config: ClassVar[type[BaseModel]] = NoOptions
    equal_groups: ClassVar[bool] = False
    """Groups have the plan's group_size exactly; those of a trajectory server that differ are left out."""
    backend: ClassVar[str | None] = None
    """The only backend that samples from its weights; None: `local`, or a server that takes new weights."""
    plays: ClassVar[bool] = False
    """Does it play the environment itself, by a policy of its own and no language model? Its plans name its `backend`;
    its evaluations are played by the function that it gives to TrainContext.evaluate()."""
    default_suite: ClassVar[str] = ""
    """Options of the suite on the training's environment that such a trainer has where no --eval is given."""
    access: ClassVar[frozenset[str]] = frozenset()
    """Options that do not decide the weights, such as a server's address or how a step is divided: a resumed run may
    change them."""
    epochs: ClassVar[bool] = False
    """Does it make the plan's number of passes where the plan has no steps? Else more than one is refused."""

    own_processes: ClassVar[bool] = False
    """Does it start the processes of its GPUs itself? It is one process for the engine then, on each node."""
    off_policy: ClassVar[bool] = False
    """Corrects for tokens of earlier weights in live groups (TrainPlan.async_steps)."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def check(self, plan: TrainPlan) -> JsonDict:
        """Raise ConfigError for what cannot work; return what --dry-run shows (derived sizes, estimates)."""
        return {}

    @abstractmethod
    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """Run to the end or until interrupted; must leave a resumable state. Raises TrainerError."""
