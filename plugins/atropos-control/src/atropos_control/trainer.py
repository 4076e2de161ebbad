"""The trainer `control`: policies for environments of Gymnasium, by PPO, SAC with HER, or GRPO.

It plays the environment itself; the run around it is that of every training: plan, folder, records, evaluations.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import ConfigError, JsonDict, ScoredGroup, Task
from atropos_cli.sdk.engine import make_group_id
from atropos_cli.sdk.records import checkpoints
from atropos_cli.sdk.runs import Plan
from atropos_cli.sdk.training import EvalSuite, TrainContext, Trainer, TrainerError, TrainPlan, TrainResult
from atropos_control import config, store
from atropos_control.config import ControlConfig
from atropos_control.environment import PREFIX, recipe_of, short_name
from atropos_control.learner import Job, Learner, random_state, set_random_state
from atropos_control.making import Recipe
from atropos_control.pictures import write_film
from atropos_control.playing import Played, Table, film, play, rollout_of
from atropos_control.policies import check_counting, weights_for, write_policy

_NEW = "new"
_ADVANTAGES = ("grpo", "dr_grpo", "rloo")
_NOT_TRAINED = ("policy", "stochastic", "video_dir")
VIDEOS = "videos"


class ControlTrainer(Trainer):
    """See the module."""

    name = "control"
    methods = ("ppo", "sac", "grpo")
    Config = ControlConfig
    backend: ClassVar[str | None] = "policy"
    plays: ClassVar[bool] = True
    default_suite: ClassVar[str] = "limit=20"
    config: ControlConfig

    def propose(
        self, method: str, given: Mapping[str, Any], *, live: bool
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Steps, sizes of groups, evaluations and own options, as the environment's preset has them."""
        return config.proposed(self.config, method, short_name(_id(str(given.get("env")))), given)

    def check(self, plan: TrainPlan) -> JsonDict:
        """Make the environment once, and see that the method fits its spaces."""
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ConfigError("trainer 'control' has no --processes", hint="--num-envs N plays in N processes")
        job = _job(self.config, plan, lambda: False)
        if plan.rollouts is not None and plan.rollouts.environment.config.get("policy") is not None:
            raise ConfigError("--env.policy is for gen and eval", hint="--model RUN/model: the policy to begin from")
        if not 0 <= plan.seed < 1 << 32:
            raise ConfigError(f"--seed {plan.seed} is not for control", hint="a number from 0 to 4294967295")
        if plan.model != _NEW:
            weights_for(plan.model, plan.method, job.options["layers"])
        env = job.recipe.make()
        try:
            seen, done = env.observation_space, env.action_space
            if plan.method != "grpo":
                check_counting(plan.method, (seen, done))
            for suite in plan.suites:
                _check_suite(suite, job.recipe, (seen, done))
            if plan.method == "sac" and type(done).__name__ != "Box":
                raise ConfigError(
                    f"sac needs actions that are numbers, and {job.recipe.id} has {done}", hint="train ppo"
                )
            if plan.method == "grpo":
                from atropos_control.actor import Actor

                Actor(seen, done, ())
                if plan.rollouts is not None and plan.rollouts.advantage not in _ADVANTAGES:
                    known = ", ".join(_ADVANTAGES)
                    raise ConfigError(
                        f"--advantage {plan.rollouts.advantage} is not for control", hint=f"one of: {known}"
                    )
        finally:
            env.close()
        per_step = job.options.get("rollout_steps", 0) * job.options["num_envs"]
        sizes = {"env_steps_per_step": per_step} if per_step else {"episodes_per_step": job.groups * job.group_size}
        return {"options": dict(job.options), "processes": job.processes, "observations": str(seen), **sizes}

    def train(self, plan: TrainPlan, context: TrainContext) -> TrainResult:
        """See the port."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # small networks: more threads only wait
        job = _job(self.config, plan, lambda: context.stopping)
        learner = _learner(job)
        try:
            return _Run(plan, context, job, learner, self.config.videos).run()
        finally:
            learner.close()


def _check_suite(suite: EvalSuite, recipe: Recipe, spaces: Sequence[Any]) -> None:
    """Raises ConfigError for what an evaluation of a policy that is trained does not have."""
    where, plan = f"--eval {suite.name}", suite.plan
    if plan.group_size > 1:
        raise ConfigError(
            f"{where}: a policy plays each start once while it is trained, not {plan.group_size} times",
            hint=f"atropos eval {plan.environment.name} --policy RUN/model --stochastic --samples {plan.group_size}",
        )
    own = recipe_of(_id(plan.environment.name), plan.environment.config)
    if ignored := next((name for name in _NOT_TRAINED if plan.environment.config.get(name)), None):
        raise ConfigError(f"{where}: {ignored} is for gen and eval", hint="leave it out")
    if own == recipe:
        return
    env = own.make()
    try:
        for wanted, found in zip(spaces, (env.observation_space, env.action_space), strict=True):
            if str(wanted) != str(found):
                raise ConfigError(
                    f"{where}: {own.id} has {found}, and the policy is trained with {wanted}",
                    hint="an environment of the same spaces, such as the one that is trained on with other options",
                )
    finally:
        env.close()


def _id(name: str) -> str:
    """The id of Gymnasium in an environment's name. Raises ConfigError for another environment."""
    family, colon, rest = name.partition(":")
    if family.rpartition("/")[2] != PREFIX or not colon or not rest:
        raise ConfigError(
            f"trainer 'control' plays environments of Gymnasium, not {name!r}",
            hint="--env gymnasium:CartPole-v1; for a language model: --trainer trl --model NAME",
        )
    return rest


def _job(options: ControlConfig, plan: TrainPlan, stop: Any) -> Job:
    assert plan.rollouts is not None
    rollouts = plan.rollouts
    name = _id(rollouts.environment.name)
    assert plan.steps is not None
    return Job(
        method=plan.method,
        recipe=recipe_of(name, rollouts.environment.config),
        options=config.resolved(options, plan.method),
        seed=plan.seed,
        steps=plan.steps,
        stop=stop,
        groups=plan.prompts_per_step,
        group_size=rollouts.group_size,
        advantage=rollouts.advantage,
    )


def _learner(job: Job) -> Learner:
    if job.method == "grpo":
        from atropos_control.grpo import GrpoLearner

        return GrpoLearner(job)
    from atropos_control.sb3 import Sb3Learner

    return Sb3Learner(job)


class _Run:
    """One session of a training."""

    def __init__(self, plan: TrainPlan, context: TrainContext, job: Job, learner: Learner, videos: int) -> None:
        self.plan, self.context, self.job, self.learner = plan, context, job, learner
        self._videos = videos
        self._tables: dict[Recipe, Table] = {}
        self._saved = -1
        self._metrics: dict[str, float] = {}
        self._save_every = plan.save_every or max(1, job.steps // 10)

    def run(self) -> TrainResult:
        """To the last step, or until stopped."""
        try:
            return self._run()
        finally:
            for table in self._tables.values():
                table.close()

    def _run(self) -> TrainResult:
        context, learner = self.context, self.learner
        evaluated = False
        if context.resume:
            folder = store.newest(context.folder)
            learner.read(folder)
            self._saved = learner.step
            evaluated = (folder / store.EVALUATED).exists()
            context.warn(f"resumed from step {learner.step} (weights, optimiser, replay buffer, random state)")
        elif self.plan.model != _NEW:
            weights = weights_for(self.plan.model, self.job.method, self.job.options["layers"])
            try:
                learner.begin_from(weights)
            except RuntimeError as error:
                raise ConfigError(
                    f"the policy in {self.plan.model} does not fit {self.job.recipe.id}: {str(error)[:300]}",
                    hint="--model new begins from random weights",
                ) from error
        if not evaluated and (learner.step == 0 or context.should_evaluate(learner.step)) and not self.job.stop():
            self._save()
            self._evaluate()
        while learner.step < self.job.steps:
            if self.job.stop():
                return self._interrupted()
            began = time.perf_counter()
            try:
                numbers = learner.update()
            except (EOFError, ConnectionError) as error:
                raise TrainerError(
                    "the process of an environment ended by itself", hint="--no-subprocesses plays in this process"
                ) from error
            if self.job.stop() and not numbers:
                return self._interrupted()
            self._metrics = {**numbers, "step_time": time.perf_counter() - began}
            context.report(learner.step, self._metrics)
            last = learner.step == self.job.steps
            due = context.should_evaluate(learner.step) and not last and not self.job.stop()
            if due or learner.step % self._save_every == 0:
                self._save()
            if due:
                self._evaluate()
        self._save()
        if self.job.stop() or not self._evaluate(final=True):
            return self._interrupted()
        store.save(context.folder / "model", self._write_policy)
        return TrainResult(output=str(context.folder / "model"), steps=learner.step, metrics=self._metrics)

    def _interrupted(self) -> TrainResult:
        self._save()
        place = self.context.folder / "checkpoints" / f"step-{self.learner.step}"
        return TrainResult(output=str(place), steps=self.learner.step, metrics=self._metrics, stopped="interrupted")

    # Evaluations ------------------------------------------------------------------------------------------------------

    def _evaluate(self, *, final: bool = False) -> bool:
        """False: it was broken off."""
        step = self.learner.step
        before = random_state()
        found = self.context.evaluate(step, final=final, play=functools.partial(self._play, step))
        set_random_state(before)
        self._metrics |= found
        if self.job.stop() and not found:
            return False
        place = self.context.folder / "checkpoints" / f"step-{step}"
        if place.is_dir():
            (place / store.EVALUATED).touch()
        names = [name for name in checkpoints(self.context.folder) if self.context.is_best(_step_of(name))]
        store.prune(self.context.folder, keep=self.plan.keep_checkpoints, best=names[0] if names else None)
        return True

    def _play(self, step: int, plan: Plan, tasks: Mapping[int, Task]) -> dict[int, list[ScoredGroup]]:
        """The tasks of a suite, the first of them with pictures."""
        recipe = recipe_of(_id(plan.environment.name), plan.environment.config)
        table = self._tables.setdefault(recipe, Table(recipe))
        policy, sample = self.learner.policy, plan.sampling.temperature != 0
        seeds = {place: int(str(task.info["seed"])) for place, task in tasks.items()}
        films = self._films(table, policy, list(seeds.values())[: self._videos], sample=sample)
        rest = [seed for seed in seeds.values() if seed not in films]
        done = films | {one.seed: one for one in play(table, policy, rest, sample=sample, stop=self.job.stop)}
        found = {}
        for place, task in tasks.items():
            played = done[seeds[place]]
            video = self._kept(played, f"{task.id}-step-{step}")
            rollout = rollout_of(task, played, f"{make_group_id(plan.digest, place)}.0", video)
            found[place] = [
                ScoredGroup(
                    group_id=make_group_id(plan.digest, place),
                    env=plan.environment.name,
                    task=task,
                    rollouts=(rollout,),
                    model=f"step-{step}",
                    seed=plan.seed,
                )
            ]
        return found

    def _films(self, table: Table, policy: Any, seeds: Sequence[int], *, sample: bool) -> dict[int, Played]:
        found: dict[int, Played] = {}
        for seed in seeds:
            if self.job.stop():
                break
            try:
                found[seed] = film(table, policy, seed, sample=sample)
            except Exception as error:  # noqa: BLE001 - a renderer may raise anything, the training continues
                self._videos = 0
                self.context.warn(f"no videos: {type(error).__name__}: {str(error)[:200]} (atropos doctor)")
                break
        return found

    def _kept(self, played: Played, name: str) -> str | None:
        """The film of an episode in the run's folder; the path below it."""
        if not played.frames:
            return None
        path = write_film(played.frames, self.context.folder / VIDEOS / name)
        return f"{VIDEOS}/{path.name}"

    # State ------------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        step = self.learner.step
        if self._saved == step:
            return

        def write(folder: Path) -> None:
            self.learner.write(folder)
            self._write_policy(folder)

        store.save(self.context.folder / "checkpoints" / f"step-{step}", write)
        self._saved = step
        best = [name for name in checkpoints(self.context.folder) if self.context.is_best(_step_of(name))]
        store.prune(self.context.folder, keep=self.plan.keep_checkpoints, best=best[0] if best else None)

    def _write_policy(self, folder: Path) -> None:
        env = self.job.recipe.make()
        try:
            spaces = (env.observation_space, env.action_space)
        finally:
            env.close()
        job = self.job
        layers = job.options["layers"]
        write_policy(
            folder, method=job.method, env=job.recipe.id, layers=layers, spaces=spaces, weights=self.learner.weights
        )


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-"))
