"""The TrainContext: the engine as a trainer sees it, made of players, stored data and records."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from atropos_cli.sdk import ConfigError, JsonDict, RolloutFailure, ScoredGroup, Task
from atropos_cli.sdk.backends import BackendError, InferenceBackend
from atropos_cli.sdk.data import atomic_write
from atropos_cli.sdk.engine import (
    Abort,
    LoopThread,
    OnFailure,
    Player,
    Registry,
    backend_of,
    close_part,
    component_rewards,
    make_group_id,
    open_backend,
)
from atropos_cli.sdk.outputs import Writer
from atropos_cli.sdk.records import PER_STEP, check_data, prompt_rows, sample_row, spaced, stored_groups, stored_rows
from atropos_cli.sdk.runs import Plan, RunDir
from atropos_cli.sdk.training import Play, Trainer, TrainerError, TrainPlan, TrainResult
from atropos_training.answers import Answers, Failures
from atropos_training.datamark import DataMark
from atropos_training.elsewhere import PlayedElsewhere
from atropos_training.frozen import FrozenCopies
from atropos_training.handover import SYNC, leave, place_of
from atropos_training.modes import evaluating
from atropos_training.order import held_out_digests
from atropos_training.orders import Order, order_of
from atropos_training.overlap import HeldOut
from atropos_training.ranks import LOADED, RankDir, RankRecording, wait_for
from atropos_training.recording import Recording
from atropos_training.suites import SuiteResults, videos_of
from atropos_training.watching import ticker_of


class TrainSession(PlayedElsewhere):
    """See ports.trainer.TrainContext. Made and closed by `run_train`. A RankDir makes it that of a rank that helps."""

    def __init__(
        self,
        plan: TrainPlan,
        run_dir: RunDir,
        registry: Registry,
        recording: Recording | RankRecording,
        *,
        resume: bool,
    ) -> None:
        self.plan = plan
        self._helps = isinstance(run_dir, RankDir)
        self._own = run_dir.folder
        self.folder = run_dir.run if isinstance(run_dir, RankDir) else run_dir.folder
        self.resume = resume
        self.tasks: int | None = None
        self.recording = recording
        self.results = SuiteResults(self.folder, [suite.name for suite in plan.suites])
        self._run_dir = run_dir
        self._registry = registry
        self._stop = threading.Event()
        self._loop: LoopThread | None = None
        self._backend: InferenceBackend | None = None
        self._in_process = False
        self._model: Any = None
        self._tokenizer: Any = None
        self._pushed: int | None = None
        self._player: Player | None = None
        self._frozen = FrozenCopies(self.folder, keeps=not self._helps, resume=resume)
        self._suites: dict[str, Player] = {}
        self._order: Order | None = None
        self._writer: Writer | None = None
        self._make_writer: Callable[[Plan], Writer] | None = None
        self._written: set[int] = set()
        self._answers: Answers | None = None
        self._scoring: LoopThread | None = None
        self._held_out = HeldOut(frozenset(), self.warn)
        accepted = self.warn if plan.accept_changed_data else None
        self._mark = DataMark(self.folder, resume=resume, keeps=not self._helps, accepted=accepted)
        self._told_skipped = False
        self._located = not resume
        self._evaluated: dict[int, dict[str, float]] = {}
        self._warned_suites: set[str] = set()
        self._spent = 0.0

    # What the trainer calls -------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """See TrainContext."""
        return self._stop.is_set()

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """See TrainContext. Opens the backend, the environment and the suites."""
        if self._backend is not None:
            raise TrainerError("adopt() was called twice")
        self._model, self._tokenizer = model, tokenizer
        if self._helps:
            self._own.mkdir(parents=True, exist_ok=True)
            self._open_writer()
        source = self.plan.rollouts or (self.plan.suites[0].plan if self.plan.suites else None)
        if source is None:
            return
        self._loop = self._loop or LoopThread()
        self._backend = backend_of(source, self._registry)
        with contextlib.suppress(BackendError):
            self._backend.adopt(self._sampled(self._backend), tokenizer)
            self._in_process = True
        with evaluating(self._model):
            self._loop.call(self._open(source, self._backend))
        if not self._in_process and not self._backend.capabilities.weight_sync:
            raise ConfigError(
                f"backend {self._backend.name!r} cannot take new weights while it runs",
                hint="leave out --base-url to sample in process, or start the server with weight updates",
            )

    def _sampled(self, backend: InferenceBackend) -> Any:
        """The module that an adopting backend samples from."""
        return self._model

    def roll(self, places: Sequence[int], *, step: int) -> list[list[ScoredGroup]]:
        """See TrainContext. Every group is written to the run's groups file once."""
        if self._player is None or self._order is None or self._loop is None:
            raise TrainerError("roll() needs an environment in the plan and adopt() first")
        if not self._located:
            self._player.recall(self._own, step)
        self._locate(step)
        tasks = {place: self._order.task(place) for place in dict.fromkeys(places)}
        found = self._sample(self._player, tasks, self._on_failure, step)
        assert found is not None, "nothing stops it"
        self._player.keep(self._own, step)
        for place, task in tasks.items():
            self._order.note(place, task, found[place])
            self._write(place, found[place])
        self._show(step, [group for place in tasks for group in found[place]])
        self._tell_skipped()
        return [found[place] for place in places]

    def _tell_skipped(self) -> None:
        if self._order is not None and self._order.skipped and not self._told_skipped:
            self._told_skipped = True
            self.warn("a training task is also a task of an evaluation: such tasks are left out")

    def groups(self) -> Iterator[ScoredGroup]:
        """See TrainContext."""
        self._mark.look(stored_groups(self.plan.data))
        return self._held_out.groups(stored_groups(self.plan.data, self.warn))

    def rows(self) -> Iterator[JsonDict]:
        """See TrainContext. For methods that learn from groups: rows with a prompt."""
        data, learns = self.plan.data, self.plan.learns
        rows = prompt_rows(data, self.warn) if learns == "groups" else stored_rows(data, learns, self.warn)
        return self._held_out.rows(self._mark.watch(rows))

    def rewards(self, rows: Sequence[JsonDict], completions: Sequence[str]) -> list[float | None]:
        """See TrainContext."""
        if self._answers is None:
            raise TrainerError("there is no reward to score completions with", hint="--reward NAME")
        # Functions run in the trainer's thread, which is the main one: a signal breaks off one that hangs.
        self._scoring = self._scoring or LoopThread()
        return self._scoring.call(self._answers.score(rows, completions))

    def report(self, step: int, metrics: Mapping[str, float]) -> None:
        """See TrainContext."""
        self._locate(step - 1)
        self.recording.step(step, {**metrics, **self._paid()})

    def _paid(self) -> dict[str, float]:
        """What this process paid to servers with a price since the last step, judges and evaluations too."""
        ledgers = [one.ledger for one in (self._player, *self._suites.values()) if one and one.ledger is not None]
        if not any(ledger.priced for ledger in ledgers):
            return {}
        spent = sum(ledger.spent for ledger in ledgers)
        before, self._spent = self._spent, spent
        return {"cost": spent - before}

    def samples(self, step: int, rows: Sequence[JsonDict]) -> None:
        """See TrainContext."""
        self.recording.samples(step, rows)

    def evaluate(self, step: int, *, final: bool = False, play: Play | None = None) -> dict[str, float]:
        """See TrainContext. Another rank than 0 has nothing to do."""
        if not self._suites or (self._backend is None and play is None) or self._helps:
            return {}
        if step in self._evaluated:  # the last step may be one that was due anyway
            return self._evaluated[step]
        self._locate(step, evaluated=False)
        values: dict[str, float] = {}
        for name, player in self._suites.items():
            tasks = self.results.tasks_of(name, player)
            failures = Failures(player.plan.group_size)
            if play is not None:
                found = self._played(play, name, step)
            else:
                found = self._sample(player, tasks, failures, step, unless=self._stop.is_set)
            if found is None:
                self.warn(f"step {step}: evaluation {name!r} is broken off, --resume makes it again")
                return {}
            self._judge_failures(name, step, failures, len(tasks) * player.plan.group_size)
            evaluation, rows = self.results.count(name, step, player.plan, tasks, found, failures.by_place)
            values |= {f"eval/{name}/{key}": value for key, value in evaluation.items()}
            self.recording.samples(step, rows, suite=name)
            self.recording.videos(step, videos_of(name, found, self.folder))
        self.results.settle(step, values)
        self.recording.evaluation(step, values)
        return self._evaluated.setdefault(step, values)

    def _played(self, play: Play, suite: str, step: int) -> dict[int, list[ScoredGroup]] | None:
        """The groups of a trainer that plays by itself; the run's groups file keeps them. None: asked to stop."""
        found = play(self._suites[suite].plan, self.results.tasks_of(suite, self._suites[suite]))
        if self.stopping or self.plan.rollouts is None:
            return None
        for place, groups in self.results.numbered(suite, step, found, self.plan.rollouts.digest).items():
            self._write(place, groups)
        return found

    def _judge_failures(self, suite: str, step: int, failures: Failures, rollouts: int) -> None:
        """Say once why rollouts of a suite fail. Raises ConfigError when all do before anything was learnt."""
        found = failures.summary(suite, step, rollouts)
        if found is not None and suite not in self._warned_suites:
            self._warned_suites.add(suite)
            self.warn(found)

    def should_evaluate(self, step: int) -> bool:
        """See TrainContext."""
        every = self.plan.eval_every
        return bool(self._suites) and every is not None and step > 0 and step % every == 0

    def is_best(self, step: int) -> bool:
        """See TrainContext."""
        return self.results.best_step == step

    def warn(self, message: str) -> None:
        """See TrainContext."""
        self.recording.warn(message)

    # What the engine calls --------------------------------------------------------------------------------------------

    def prepare(self, open_writer: Callable[[Plan], Writer]) -> None:
        """Find what needs no model: data, tasks, overlap with the suites, rewards. Raises ConfigError, DataError."""
        check_data(self.plan)
        self._forget_weights()
        self._make_writer = open_writer
        plan = self.plan.rollouts
        self._suites = {suite.name: Player(suite.plan, self._registry, self._event) for suite in self.plan.suites}
        held_out: frozenset[bytes] = frozenset()
        for name, player in self._suites.items():
            held_out |= held_out_digests(self.results.tasks_of(name, player).values())
        self._held_out = HeldOut(held_out, self.warn)
        if self.plan.rewards:
            rewards = component_rewards(self.plan.rewards, {}, self._registry)
            self._answers = Answers(rewards, self.plan, self._run_dir.failure, self.warn)
        if plan is not None:
            self._prepare_rollouts(plan, held_out)

    def _prepare_rollouts(self, plan: Plan, held_out: frozenset[bytes]) -> None:
        self._player = Player(plan, self._registry, self._event)
        self._order = order_of(self._player.environment, plan, self._own, held_out)
        self.tasks = self._order.length
        if self._order.skipped:
            self._told_skipped = True
            self.warn(f"{self._order.skipped} training tasks are also tasks of an evaluation: they are left out")
        if not self._helps:  # another rank's folder is made when all have met
            self._open_writer()

    def _open_writer(self) -> None:
        plan = self.plan.rollouts
        if plan is not None and self._make_writer is not None:
            self._writer = self._make_writer(plan)
            self._written = set(self._writer.open(self._own, prefix=plan.digest[:10], fsync=plan.execution.fsync))

    def carry(self, trainer: Trainer) -> TrainResult:
        """Train, in this thread."""
        return trainer.train(self.plan, self)

    def account(self) -> None:
        """The run is over: report the counts."""
        if self._order is not None and self._order.length is None and self._order.skipped:
            self.warn(f"{self._order.skipped} training tasks were also tasks of an evaluation: they were left out")

    def stop(self) -> None:
        """Ask the trainer to save and return."""
        self._stop.set()

    def close(self) -> None:
        """Close environments, backend and the groups file; safe to call twice."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            with contextlib.suppress(Exception):
                loop.call(self._close())
            loop.close()
        if self._answers is not None and self._scoring is not None:
            with contextlib.suppress(Exception):
                self._scoring.call(self._answers.close())
            self._scoring.close()
        self._answers = self._scoring = None
        if self._order is not None:
            self._order.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._forget_weights()

    def _forget_weights(self) -> None:
        if not self._helps:
            shutil.rmtree(self.folder / SYNC, ignore_errors=True)

    async def _open(self, plan: Plan, backend: InferenceBackend) -> None:
        try:
            await open_backend(backend, plan, self._event, asyncio.Event())
        except Abort as abort:
            raise abort.error from abort
        players = [one for one in (self._player, *(() if self._helps else self._suites.values())) if one is not None]
        model = self._model if self._in_process else None
        await self._frozen.open([one.plan for one in players], self._registry, model, self._tokenizer)
        for one in players:
            await one.open(backend, self._frozen.of(one.plan))

    async def _close(self) -> None:
        for player in (self._player, *self._suites.values()):
            if player is not None:
                await player.close()
        await self._frozen.close()
        if self._backend is not None:
            await close_part(self._backend)

    def _locate(self, step: int, *, evaluated: bool = True) -> None:
        """After a resume, the first call gives the step at which the run continues: later steps are made again."""
        if not self._located:
            self._located = True
            if self._helps:
                return
            self.results.recover(step if evaluated else step - 1)
            self.recording.resumed(step, evaluated=evaluated)

    def _sample(
        self,
        player: Player,
        tasks: Mapping[int, Task],
        on_failure: OnFailure,
        step: int,
        *,
        unless: Callable[[], bool] = lambda: False,
    ) -> dict[int, list[ScoredGroup]] | None:
        """Roll with the weights as they are now. In process nothing of them is kept behind it, and no memory.

        None when `unless` became true meanwhile.
        """
        assert self._backend is not None and self._loop is not None  # noqa: PT018
        if not self._in_process and self._pushed != step:
            self._push(self._backend, self._loop, step)
        self._frozen.renew(self._model, step, self._loop)
        with evaluating(self._model):
            tick = ticker_of(player, self._suites, self.recording, step, len(tasks))
            found = self._loop.call_unless(unless, player.roll(tasks, on_failure), tick)
            if self._in_process:
                self._loop.call(self._backend.update_weights(None, version=step))
        return found

    def _push(self, backend: InferenceBackend, loop: LoopThread, step: int) -> None:
        """Give a server the weights.

        Rank 0 does so, and says when; no rank comes to the next step before all have rolled this one.
        """
        sync = self.folder / SYNC
        folder, loaded = place_of(sync, step), sync / LOADED
        if self._helps:
            wait_for(loaded, str(step))
        else:
            leave(folder, self._model, self._tokenizer)
        loop.call(backend.update_weights(str(folder.resolve()), version=step, loaded=self._helps))
        if not self._helps:
            atomic_write(loaded, str(step).encode())
        self._pushed = step

    def _write(self, place: int, groups: Sequence[ScoredGroup]) -> None:
        if groups and self._writer is not None and place not in self._written:
            self._writer.write(tuple(groups))
            self._written.add(place)

    def _show(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        alive = [(group, one) for group in groups for one in group.rollouts if one.failure is None]
        of = self._player.rewards_of if self._player is not None else lambda task: ()
        rows = [sample_row(group.task, one, of(group.task)) for group, one in spaced(alive, PER_STEP)]
        if rows:
            self.recording.samples(step + 1, rows)  # the optimiser step that learns from them

    def _on_failure(self, place: int, task: Task, reason: RolloutFailure, rollout: str | None) -> None:
        assert self.plan.rollouts is not None
        self._run_dir.failure(make_group_id(self.plan.rollouts.digest, place), task.id, reason, rollout)

    def _event(self, kind: str, message: str) -> None:
        self.warn(message)
