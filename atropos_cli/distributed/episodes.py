"""What episodes of another trainer need on disk: the plans, where our engine is, and rows with the tasks."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from atropos_cli.distributed import chat, host, inside
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.task import Task
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import ConfigError
from atropos_cli.io.append import atomic_write
from atropos_cli.plugins.discovery import get_registry
from atropos_cli.ports.environment import Environment, GameEnvironment
from atropos_cli.ports.trainer import TrainContext
from atropos_cli.rollout.references import component_rewards, environment_rewards, reward_objects

CODE = "code"
CLIENTS = {"atropos_episodes": inside, "atropos_chat": chat}
"""What the trainer's side imports, by its name there."""
TRAIN = "train"
_TURNS = 3
_REHEARSAL_S = 600.0


def check_plan(plan: TrainPlan, trainer: str, takes: Collection[str] = ()) -> Plan:
    """The plan of the live rollouts, where another trainer can play them one by one. Raises ConfigError.

    takes: those of min_p and stop that its servers can be given.
    """
    rollouts = plan.rollouts
    if rollouts is None or plan.pull is not None:
        raise ConfigError(
            f"--trainer {trainer} trains on live rollouts of an environment",
            hint="--env NAME; --trainer trl takes data",
        )
    other = "--trainer native trains on groups of any shape"
    if rollouts.selection.curriculum is not None:
        raise ConfigError(
            f"--curriculum looks at each step's rewards, which {trainer} keeps to itself", hint="leave it out"
        )
    copies = [name for name, role in rollouts.roles.items() if role.backend is None]
    if copies:
        raise ConfigError(f"{trainer} plays one rollout at a time: no role {copies[0]!r} of the policy", hint=other)
    for one in (rollouts, *(suite.plan for suite in plan.suites)):
        _check_environments(one, trainer, other)
    given = [name for name in ("min_p", "stop") if name not in takes and getattr(rollouts.sampling, name)]
    if given:
        raise ConfigError(
            f"--{given[0].replace('_', '-')} cannot be passed to the servers of {trainer}", hint="leave it out"
        )
    return rollouts


def check_suites(plan: TrainPlan, trainer: str) -> None:
    """Raises ConfigError for suites that differ in what a trainer sets for all evaluations."""
    kinds = {(suite.plan.group_size, suite.plan.sampling.temperature) for suite in plan.suites}
    if len(kinds) > 1:
        raise ConfigError(
            f"{trainer} evaluates all suites alike: --eval suites differ in samples or temperature",
            hint="give each the same samples=N,temperature=T",
        )


def _check_environments(plan: Plan, trainer: str, hint: str) -> None:
    registry = get_registry()
    parts = [(member.environment, member.rewards) for member in plan.mixture] or [(plan.environment, plan.rewards)]
    for ref, rewards in parts:
        cls: type[Environment] = registry.find("environment", ref.name, dist=ref.dist).load()
        if issubclass(cls, GameEnvironment):
            raise ConfigError(
                f"environment {ref.name!r} makes groups of its own, and {trainer} plays one rollout at a time",
                hint=hint,
            )
        own = reward_objects(environment_rewards(ref, registry))
        for reward in component_rewards(rewards, own, registry):
            if reward.kind == "group":
                raise ConfigError(
                    f"reward {reward.name!r} compares the rollouts of a group, and {trainer} scores one at a time",
                    hint=hint,
                )


def steps_of(plan: TrainPlan, context: TrainContext) -> int:
    """The optimiser steps of the run. Raises ConfigError for an endless environment without --steps."""
    if plan.steps is not None:
        return plan.steps
    if context.tasks is None:
        raise ConfigError("the environment has tasks without end", hint="--steps N")
    return max(1, context.tasks // plan.prompts_per_step)


def write_folder(folder: Path, plan: TrainPlan, rollouts: Plan, modules: list[Path]) -> Path:
    """The folder that `inside` and `host` work with; returns the one for PYTHONPATH. modules: files beside CLIENTS."""
    code = folder / CODE
    for name in (host.PLANS, host.ROLLOUTS, CODE):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / inside.FATAL).unlink(missing_ok=True)
    plans = {TRAIN: rollouts, **{plan_of_suite(place): suite.plan for place, suite in enumerate(plan.suites)}}
    for name, one in plans.items():
        atomic_write(folder / host.PLANS / f"{name}.json", one.model_dump_json().encode())
    spec = {"python": sys.executable, "cwd": str(Path.cwd()), "pythonpath": os.environ.get("PYTHONPATH")}
    atomic_write(folder / inside.SPEC, json.dumps(spec).encode())
    ours = {name: Path(str(module.__file__)) for name, module in CLIENTS.items()}
    for name, source in {**ours, **{module.stem: module for module in modules}}.items():
        shutil.copyfile(source, code / f"{name}.py")
    return code


def plan_of_suite(place: int) -> str:
    """The name of a suite's plan in the folder."""
    return f"eval-{place}"


def training_items(context: TrainContext, count: int) -> Iterator[dict[str, Any]]:
    """The tasks of the run in the order of the steps, each with what an episode of it begins with."""
    for place in range(count):
        yield _item(TRAIN, place, context.task(place))


def suite_items(plan: TrainPlan, context: TrainContext) -> Iterator[tuple[str, dict[str, Any]]]:
    """(suite, item) of all tasks that the run is evaluated on."""
    for number, suite in enumerate(plan.suites):
        for place, task in context.suite_tasks(suite.name).items():
            yield suite.name, _item(plan_of_suite(number), place, task)


def _item(plan: str, place: int, task: Task) -> dict[str, Any]:
    return {"plan": plan, "place": place, "task": task.model_dump(mode="json")}


def try_episode(folder: Path, item: dict[str, Any], trainer: str) -> None:
    """Play an episode with replies that say nothing: what can never work is found before GPUs are taken.

    Raises ConfigError. This one episode may fail.
    """
    engine = inside.Engine(folder)
    try:
        episode = engine.begin(item, step=-1)
        said = episode.next.result(_REHEARSAL_S)
        for turn in range(_TURNS + 1):
            if "ask" not in said:
                break
            reply: dict[str, Any] = {"text": "-"} if turn < _TURNS else {"overflow": True}
            said = episode.reply(**reply).result(_REHEARSAL_S)
    except (inside.EngineLost, TimeoutError) as error:
        raise ConfigError(f"no episode can be played for {trainer}: {error}", hint="see atropos env check") from error
    finally:
        engine.close()
        (folder / inside.FATAL).unlink(missing_ok=True)
    if "fatal" in said:
        raise ConfigError(f"no episode can be played for {trainer}: {said['fatal']}", hint="see atropos env check")


def prompt_of(item: dict[str, Any]) -> list[dict[str, str]]:
    """Messages for a column that trainers want; an episode whose first messages come from its start has others."""
    texts = [
        {"role": one["role"], "content": one["content"]}
        for one in item["task"]["prompt"]
        if isinstance(one.get("content"), str)
    ]
    return texts or [{"role": "user", "content": item["task"]["id"]}]


def write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    """Write rows a thousand at a time; returns their number."""
    import itertools

    import pyarrow as pa
    import pyarrow.parquet as pq

    count, writing, writer = 0, path.with_name(f".writing-{path.name}"), None
    try:
        while part := list(itertools.islice(rows, 1000)):
            table = pa.Table.from_pylist(part, schema=None if writer is None else writer.schema)
            writer = writer or pq.ParquetWriter(writing, table.schema)
            writer.write_table(table)
            count += len(part)
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        writing.replace(path)
    return count
