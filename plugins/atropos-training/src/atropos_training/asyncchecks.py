"""What `--async-steps` cannot be combined with."""

from __future__ import annotations

import os

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.training import Trainer, TrainPlan


def check_async(plan: TrainPlan, trainer: Trainer) -> None:
    """Raises UsageError."""
    said, rollouts = f"--async-steps {plan.async_steps}", plan.rollouts
    if rollouts is None or plan.pull is not None:
        raise UsageError(
            f"{said}: only rollouts of an environment are made beside the optimiser",
            hint="leave it out; --from has --off-policy" if plan.pull is not None else "leave it out, or --env NAME",
        )
    if not trainer.off_policy:
        raise UsageError(
            f"{said}: the trainer {plan.trainer.name} needs rollouts of its own weights", hint="--trainer native"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError(f"{said} trains in one process", hint="leave out --processes, or --async-steps")
    if rollouts.selection.curriculum is not None:
        raise UsageError(
            f"{said}: a curriculum chooses tasks by the results of the steps before",
            hint="leave out --curriculum, or --async-steps",
        )
    for name, role in rollouts.roles.items():
        if role.refresh is not None:
            raise UsageError(
                f"{said}: --role.{name}.refresh would change a player's weights in the middle of its games",
                hint=f"give the role a model: --role.{name}.model CHECKPOINT, or leave out --async-steps",
            )
