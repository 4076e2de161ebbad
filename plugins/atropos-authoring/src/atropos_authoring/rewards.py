"""What every reward must do, as tests. Subclass RewardContract and give the reward and some cases."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from atropos_authoring.helpers import STRANGE_REPLIES, make_rollout
from atropos_cli.sdk import Reward, Rollout, Task

Reply = str | Rollout


class RewardContract:
    """Set `reward` and `cases`.

    cases: (task, reply, expected value). For a group reward: (task, replies, expected values). A reply
    is the text of the last message, or a whole Rollout. At least two cases must expect different values.
    """

    reward: ClassVar[Reward]
    cases: ClassVar[Sequence[tuple[Task, Any, Any]]] = ()

    def test_it_is_a_reward_with_a_name_and_a_summary(self) -> None:
        assert isinstance(self.reward, Reward), "decorate the function with @reward or @group_reward"
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.reward.name), f"bad name {self.reward.name!r}"
        assert self.reward.summary, "write a docstring: its first line is what lists show"
        assert math.isfinite(self.reward.weight)

    def test_cases_have_the_expected_values(self) -> None:
        for task, reply, expected in self.cases:
            assert self._score(task, reply) == pytest.approx(self._expected(expected)), f"reply {_show(reply)}"

    def test_it_tells_good_from_bad(self) -> None:
        """A reward that is the same for all replies teaches nothing."""
        values = [value for _, _, expected in self.cases for value in self._expected(expected)]
        assert len(set(values)) > 1, "give cases with at least two different expected values"

    def test_the_same_rollout_has_the_same_value(self) -> None:
        for task, reply, _ in self.cases:
            assert self._score(task, reply) == self._score(task, reply), f"reply {_show(reply)}"

    def test_strange_replies_have_a_finite_value(self) -> None:
        """A model may say anything, and an episode may end before it says anything."""
        assert self.cases, "give at least one case: its task is needed here"
        task = self.cases[0][0]
        for reply in (*STRANGE_REPLIES, make_rollout(task.prompt, task=task)):
            value = self._score(task, [reply] if self.reward.kind == "group" else reply)
            assert all(math.isfinite(number) for number in value), f"reply {_show(reply)}: {value}"

    def test_what_it_extracts_is_json(self) -> None:
        """Records of training runs show it, whatever a model said."""
        extract = self.reward.extract
        if extract is None:
            return
        replies = [item for _, reply, _ in self.cases for item in (reply if self.reward.kind == "group" else [reply])]
        task = self.cases[0][0]
        for reply in (*replies, *STRANGE_REPLIES, make_rollout(task.prompt, task=task)):
            json.dumps(extract(task, _rollout(task, reply, 0)))  # raises what the extraction raises, and TypeError

    def test_nothing_is_printed(self, capfd: pytest.CaptureFixture[str]) -> None:
        for task, reply, _ in self.cases:
            self._score(task, reply)
        printed = capfd.readouterr().out
        assert not printed, f"stdout belongs to the data; the reward printed {printed[:200]!r}"

    def _score(self, task: Task, reply: Any) -> list[float]:
        if self.reward.kind == "group":
            rollouts = [_rollout(task, item, number) for number, item in enumerate(reply)]
            values = [float(value) for value in _value(self.reward(task, rollouts))]
            assert len(values) == len(rollouts), f"{len(values)} values for {len(rollouts)} rollouts"
            return values
        return [float(_value(self.reward(task, _rollout(task, reply, 0))))]

    def _expected(self, expected: Any) -> list[float]:
        return [float(value) for value in expected] if self.reward.kind == "group" else [float(expected)]


def _rollout(task: Task, reply: Reply, number: int) -> Rollout:
    return make_rollout(reply, task=task, number=number) if isinstance(reply, str) else reply


def _value(result: Any) -> Any:
    if not inspect.isawaitable(result):
        return result

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def _show(reply: Any) -> str:
    text = repr(reply)
    return text if len(text) <= 80 else text[:77] + "..."
