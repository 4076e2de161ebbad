"""One task played with a scripted reply and scored by every reward of a plan: what always fails shows before a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import RolloutFailure
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, BackendError, ServerUnavailable, TransientBackendError
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.environment import Environment
from atropos_cli.ports.reward import Reward
from atropos_cli.rollout.backends import close_part
from atropos_cli.rollout.dispatch import Dispatcher
from atropos_cli.rollout.episodes import failure
from atropos_cli.rollout.groups import GroupRoller, Run
from atropos_cli.rollout.references import component_rewards, environment_rewards, reward_objects
from atropos_cli.rollout.scoring import Scorer
from atropos_cli.rollout.stopping import Abort

REPLY = "Answer: 7"
_TIME = 30.0
_BACKEND = frozenset(kind.__name__ for kind in (BackendError, TransientBackendError, ServerUnavailable))


@dataclass
class Rehearsal:
    """scored: rewards that gave the reply a value. left_out: what needs more than is here, and why."""

    scored: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


async def rehearse(plan: Plan, environment: Environment, task: Task, registry: Registry) -> Rehearsal:
    """Play the task by a plan of the scripted backend, in an open environment. Nothing is written."""
    found = Rehearsal()
    rewards = await _opened(plan, environment, registry, found)
    cls: Any = registry.find("backend", plan.backend.name).load()
    backend = cls(cls.Config.model_validate(plan.backend.config))
    try:
        await backend.open(workers=plan.execution.workers)
        dispatcher = Dispatcher(backend, plan.execution, lambda kind, message: None)
        run = Run(plan, plan.digest, environment.name, dispatcher, Scorer(rewards))
        async with asyncio.timeout(_TIME):
            groups = await GroupRoller(run, 0).roll(environment, task)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        found.scored = sorted({name for rollout in rollouts for name in rollout.rewards})
        _judge([rollout.failure for rollout in rollouts if rollout.failure is not None], found)
    except TimeoutError:
        found.left_out["episode"] = f"not over after {_TIME:.0f} s of the reply {REPLY!r}"
    except (Abort, BackendError) as error:
        found.left_out["episode"] = str(error)
    except Exception as error:  # noqa: BLE001 - the environment's own error is the finding
        _judge([failure("environment", error, type(environment).roll_group)], found)
    finally:
        for part in (backend, *rewards):
            await close_part(part)
    return found


async def _opened(plan: Plan, environment: Environment, registry: Registry, found: Rehearsal) -> list[Reward]:
    """The plan's rewards, without those that cannot work here."""
    own = reward_objects(environment_rewards(plan.environment, registry))
    rewards = []
    for ref in plan.rewards:
        try:
            (reward,) = component_rewards([ref], own, registry)
            await reward.open()
        except AtroposError as error:
            found.left_out[ref.name] = error.message
        except Exception as error:  # noqa: BLE001 - the reward's own error is the finding
            found.problems.append(f"reward {ref.name}: open() failed: {type(error).__name__}: {error}")
        else:
            rewards.append(reward)
    return rewards


def _judge(failures: Sequence[RolloutFailure], found: Rehearsal) -> None:
    """Say each failure once. A reset that fails is reported for every task, and what asks a model has none here."""
    for reason in failures:
        text = f"{reason.type}: {reason.message}"
        if reason.type in _BACKEND or reason.stage == "generate":
            found.left_out.setdefault(reason.stage, text)
        elif reason.stage != "reset":
            where = f" ({reason.place})" if reason.place else ""
            told = f"a reply of {REPLY!r} fails at stage {reason.stage}: {text}{where}"
            if told not in found.problems:
                found.problems.append(told)
