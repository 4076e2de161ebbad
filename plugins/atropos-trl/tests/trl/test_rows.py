"""From scored groups to TRL's rows: what is sampled stays as it is, what TRL cannot hold is refused."""

from __future__ import annotations

from typing import Any

import pytest
from atropos_trl.native.rows import rows_of
from atropos_trl.rows import Batch, batch_of

from atropos_cli.sdk import Message, Rollout, ScoredGroup, Task, TokenSpan, assistant, user
from atropos_cli.sdk.training import TrainerError


def rollout(number: int, *spans: tuple[str, TokenSpan], reward: float | None = 1.0, **fields: Any) -> Rollout:
    messages = tuple(Message(role=role, content="x", tokens=tokens) for role, tokens in spans)  # type: ignore[arg-type]
    return Rollout(id=f"t/{number}", task_id="t", messages=messages, reward=reward, **fields)


def group(*rollouts: Rollout, **fields: Any) -> ScoredGroup:
    task = Task(id="t", prompt=(user("x"),))
    return ScoredGroup(group_id="d-0", env="e", task=task, rollouts=rollouts, model="m", **fields)


def rows(*places: list[ScoredGroup], size: int = 2, **options: Any) -> Batch:
    values: dict[str, Any] = {"filler": 1, "mask_truncated": False, "max_prompt_tokens": None, **options}
    return batch_of(places, group_size=size, **values)


PROMPT = ("user", TokenSpan(ids=(5, 6)))
REPLY = ("assistant", TokenSpan(ids=(7, 8), mask=True, logprobs=(-0.1, -0.2)))


def test_two_turns_stay_as_sampled() -> None:
    between = ("user", TokenSpan(ids=(9,)))
    last = ("assistant", TokenSpan(ids=(3, 1), mask=(True, True), logprobs=(-0.3, -0.4)))
    closing = ("user", TokenSpan(ids=(4, 4)))
    batch = rows([group(rollout(0, PROMPT, REPLY, between, last, closing), rollout(1, PROMPT, REPLY))])
    row = batch.rows[0]
    assert (row.prompt_ids, row.completion_ids) == ([5, 6], [7, 8, 9, 3, 1])
    assert row.trained == [True, True, False, True, True]
    assert row.logprobs == [-0.1, -0.2, 0.0, -0.3, -0.4]


def test_a_failed_rollout_has_no_loss_and_no_reward() -> None:
    batch = rows([group(rollout(0, PROMPT, REPLY), rollout(1, PROMPT, REPLY, reward=None))], [])
    assert batch.failed == 3
    assert [row.reward for row in batch.rows] == [1.0, None, None, None]
    assert [any(row.trained) for row in batch.rows] == [True, False, False, False]


def test_a_side_that_never_moved_has_a_reward_and_nothing_to_train() -> None:
    """A game may end before a player's first move; its tokens are not missing."""
    moved, waited = rollout(0, PROMPT, REPLY, reward=-1.5), rollout(1, PROMPT, reward=0.5)
    batch = rows([group(moved, waited)])
    assert [row.reward for row in batch.rows] == [-1.5, 0.5]
    assert [any(row.trained) for row in batch.rows] == [True, False]
    assert [row.owner for row in rows_of([group(moved, waited)], mask_truncated=False)] == [(0, 0)]
    with pytest.raises(TrainerError, match="carries no sampled token ids"):
        rows_of([group(moved, rollout(1, ("assistant", TokenSpan(ids=()))))], mask_truncated=False)


def test_truncated_rows_masked_or_kept() -> None:
    """F07: with the mask the cut one has no loss, and its reward still counts."""
    cut = rollout(1, PROMPT, REPLY, reward=0.0, stop_reason="length")
    kept = rows([group(rollout(0, PROMPT, REPLY), cut)])
    masked = rows([group(rollout(0, PROMPT, REPLY), cut)], mask_truncated=True)
    assert [any(row.trained) for row in kept.rows] == [True, True]
    assert [any(row.trained) for row in masked.rows] == [True, False]
    assert [row.reward for row in masked.rows] == [1.0, 0.0]
    assert (kept.masked_truncated, masked.masked_truncated) == (0, 1)


def test_long_prompts_are_left_out_and_counted() -> None:
    batch = rows([group(rollout(0, PROMPT, REPLY), rollout(1, PROMPT, REPLY))], max_prompt_tokens=1)
    assert batch.long_prompts == 2
    assert all(row.reward is None and not any(row.trained) for row in batch.rows)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([group(rollout(0, PROMPT, REPLY))], "group of 1 rollouts, not 2"),
        ([group(rollout(0, PROMPT, REPLY), rollout(1, PROMPT, REPLY))] * 2, "made 2 groups"),
        (
            [
                group(
                    rollout(0, PROMPT, REPLY, ("user", TokenSpan(ids=(5, 6, 2), restart=True)), REPLY),
                    rollout(1, PROMPT, REPLY),
                )
            ],
            "several token sequences",
        ),
    ],
)
def test_other_shapes_are_for_the_native_trainer(groups: list[ScoredGroup], words: str) -> None:
    with pytest.raises(TrainerError, match=words) as caught:
        rows(groups)
    assert "--trainer native" in str(caught.value.hint)


def test_a_rare_split_rollout_has_no_loss() -> None:
    """One of many whose text does not give its tokens back does not end the run."""
    odd = rollout(0, PROMPT, REPLY, ("user", TokenSpan(ids=(5, 6, 2), restart=True)), REPLY, reward=0.5)
    good = [group(*(rollout(number, PROMPT, REPLY) for number in range(4)))] * 2
    batch = rows([group(odd, *good[0].rollouts[1:])], [good[0]], [good[1]], size=4)
    assert (batch.split, batch.failed) == (1, 0)
    assert (batch.rows[0].reward, any(batch.rows[0].trained)) == (0.5, False)


def test_no_token_ids() -> None:
    bare = Rollout(id="t/0", task_id="t", messages=(user("x"), assistant("y")), reward=1.0)
    with pytest.raises(TrainerError, match="no sampled token ids"):
        rows([group(bare, bare)])


@pytest.mark.parametrize(
    "spans",
    [
        (REPLY,),
        (("assistant", TokenSpan(ids=(7, 8), mask=(True, False))),),
        (PROMPT, REPLY, ("assistant", TokenSpan(ids=(3, 4), mask=True, restart=True))),
    ],
)
def test_a_sequence_without_its_prompts_tokens_is_refused(spans: tuple[tuple[str, TokenSpan], ...]) -> None:
    whole = rollout(1, PROMPT, REPLY)
    with pytest.raises(TrainerError, match=r"t/0.*without those of its prompt"):
        rows([group(rollout(0, *spans), whole)])
    with pytest.raises(TrainerError, match=r"t/0.*without those of its prompt"):
        rows_of([group(rollout(0, *spans), whole)], mask_truncated=False)
    assert len(rows_of([group(whole)], mask_truncated=False)) == 1
