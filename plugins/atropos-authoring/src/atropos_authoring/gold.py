"""Does a task's gold answer earn full marks by the rewards that its environment names? Needs no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_cli.sdk import Reward, Rollout, Task, assistant
from atropos_cli.sdk.authoring import named_rewards
from atropos_cli.sdk.engine import Registry, Scorer

FORMS = ("{}", "\\boxed{{{}}}", "#### {}", "The answer is ({})", "<answer>{}</answer>")
"""How a reply may state an answer. The gold answer is tried in each: which of them counts is the reward's affair."""


class GoldRewards:
    """The installed rewards of an environment that train, and their verdict on its gold answers.

    Rewards that the environment brings along as objects are its own affair: validate() speaks for them.
    """

    def __init__(self, own: Sequence[Any], registry: Registry) -> None:
        self._rewards: list[Reward] = [item for item in named_rewards(own, registry) if item.weight > 0]
        self._full = sum(item.weight for item in self._rewards)

    async def full_marks(self, task: Task) -> bool | None:
        """True when the gold answer, written in one of FORMS, gets 1 by every reward; None without anything to check.

        Raises RuntimeError with the reward's words when it fails on every form.
        """
        answer = task.answer[0] if isinstance(task.answer, list) and task.answer else task.answer
        if not self._rewards or isinstance(answer, bool) or not isinstance(answer, str | int | float):
            return None
        failures: list[str] = []
        for form in FORMS:
            reply = assistant(form.format(answer))
            rollout = Rollout(id="gold", task_id=task.id, messages=(*task.prompt, reply), stop_reason="done")
            (scored,) = await Scorer(self._rewards).score(task, [rollout])
            if scored.failure is not None:
                failures.append(scored.failure.message)
            elif scored.reward is not None and scored.reward >= self._full - 1e-9:
                return True
        if len(failures) == len(FORMS):
            raise RuntimeError(failures[0])
        return False
