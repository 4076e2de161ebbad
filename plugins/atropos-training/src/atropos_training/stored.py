"""A stored plan of a training, executed by `atropos run FOLDER`: for a job, or as one of several processes."""

from __future__ import annotations

import os

from atropos_cli.sdk.commands import Session
from atropos_cli.sdk.planning import PlanRunner, StoredRun
from atropos_cli.sdk.records import read_train_plan
from atropos_cli.sdk.training import TrainPlan
from atropos_training.build import derived, make_trainer
from atropos_training.processes import World
from atropos_training.train import execute_training, on_processes, print_train_plan


class StoredTraining(PlanRunner):
    """Trains by the plan as it was resolved, whatever configuration files say now."""

    def run(self, stored: StoredRun, session: Session) -> int:
        """See PlanRunner."""
        plan = _served(read_train_plan(stored.path), stored.urls)
        if plan.pull is not None and stored.trajectories is not None:
            plan = plan.replace(pull=plan.pull.replace(url=stored.trajectories))
        _, trainer = make_trainer(plan.trainer.name, {**plan.trainer.config, **plan.access}, session.registry)
        if stored.dry_run:
            print_train_plan(plan, derived(trainer, plan), session, as_json=stored.as_json)
            return 0
        world = World.here(stored.processes)
        if stored.path.parent != stored.folder:  # one of several processes: the folder is where the run is resumed
            processes = os.environ.get("LOCAL_WORLD_SIZE", "1")
            session.args = ("run", str(stored.folder), *(("--processes", processes) if processes != "1" else ()))
        if world.size > 1:
            os.environ["WORLD_SIZE"] = str(world.size)
            return on_processes(plan, trainer, stored, session, world)
        return execute_training(plan, trainer, stored.folder, session, as_json=stored.as_json, begin=stored.begin)


def _served(plan: TrainPlan, urls: tuple[str, ...]) -> TrainPlan:
    """The plan with the addresses of servers that were not known when it was made."""
    if plan.rollouts is None:
        return plan
    served: TrainPlan = plan.replace(
        rollouts=plan.rollouts.replace(backend=plan.rollouts.backend.served(urls)),
        suites=tuple(
            suite.replace(plan=suite.plan.replace(backend=suite.plan.backend.served(urls))) for suite in plan.suites
        ),
    )
    return served
