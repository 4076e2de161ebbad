"""Tokens that other weights sampled: truncated importance sampling, by hand, by `native` and by `trl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import Folder, make_plan, rollout, span, train

from atropos_cli.sdk import ScoredGroup, Task, user
from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.runs import ComponentRef, Plan
from atropos_cli.sdk.training import TrainPlan
from atropos_cli.sdk.trajectories import Pull

PROMPT, LENGTH = [3, 12, 5, 13], 4
REPLIES = [[4, 6, 7], [5, 9], [8, 2, 3, 1], [10, 11]]
SAMPLED = [-1.5, -3.0, -4.5, -3.2]
"""By place: the model gives about ln 1/21 = -3.04, so the third token is capped and the first counts for a fifth."""
REWARDS = [1.0, 0.0, 0.5, 0.0]
CAP = 2.0


def groups(version: int | None, *, logprobs: bool = True) -> list[ScoredGroup]:
    """A group as a trajectory server gives it, all of it of one version of the weights."""
    members = []
    for number, (ids, reward) in enumerate(zip(REPLIES, REWARDS, strict=True)):
        mask = (*[False] * len(PROMPT), *[True] * len(ids))
        values = (*[0.0] * len(PROMPT), *SAMPLED[: len(ids)]) if logprobs else None
        tokens = span([*PROMPT, *ids], mask, values, restart=True).model_copy(update={"version": version})
        members.append(rollout(f"t/{number}", [("assistant", tokens)], reward))
    return [ScoredGroup(group_id="d-0", env="e", task=Task(id="t", prompt=(user("x"),)), rollouts=members, model="")]


def plan(tiny: Path, trainer: str = "native", **config: Any) -> TrainPlan:
    rolled = Plan(
        atropos_version="0",
        environment=ComponentRef(name="trajectory-server"),
        backend=ComponentRef(name="local"),
        group_size=len(REPLIES),
        sampling=Sampling(temperature=1.0, max_tokens=LENGTH),
    )
    made = make_plan(tiny, config={"algorithm": "dr_grpo", **config}, data=(), prompts_per_step=1)
    ref = ComponentRef(name=trainer, config={"algorithm": "dr_grpo", **config})
    return made.replace(rollouts=rolled, pull=Pull(url="http://127.0.0.1:9"), trainer=ref)


def by_hand(tiny: Path, *, corrected: bool) -> float:
    """The gradient's norm of dr_grpo: -1/(rows x length) sum of min(C, p / q) (r - mean) ln p."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    mean = sum(REWARDS) / len(REWARDS)
    loss = torch.zeros(())
    for ids, reward in zip(REPLIES, REWARDS, strict=True):
        logits = model(input_ids=torch.tensor([[*PROMPT, *ids]])).logits[0, len(PROMPT) - 1 : -1]
        logp = torch.log_softmax(logits, -1)[range(len(ids)), ids]
        weight = (logp.detach() - torch.tensor(SAMPLED[: len(ids)])).exp().clamp(max=CAP)
        loss = loss - ((weight if corrected else 1.0) * (reward - mean) * logp).sum() / (len(REPLIES) * LENGTH)
    loss.backward()
    return float(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm())


@pytest.mark.parametrize(("version", "corrected"), [(0, False), (3, True), (None, True)])
def test_tokens_of_other_weights_are_corrected(
    tiny: Path, tmp_path: Path, version: int | None, corrected: bool
) -> None:
    context = Folder(tmp_path, groups(version))
    train(plan(tiny, micro_batch_tokens=20), context)
    found = context.reports[0][1]
    assert found["grad_norm"] == pytest.approx(by_hand(tiny, corrected=corrected), rel=1e-5)
    assert ("importance" in found) == corrected
    assert abs(by_hand(tiny, corrected=True) / by_hand(tiny, corrected=False) - 1) > 0.05


@pytest.mark.parametrize("version", [0, 3])
def test_trl_makes_the_same_gradient(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    pytest.importorskip("trl")
    from atropos_trl.trainer import TrlTrainer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    wanted = plan(tiny, "trl", precision="fp32", allow_constant_reward=True)
    context = Folder(tmp_path, groups(version))
    TrlTrainer(TrlTrainer.Config.model_validate(wanted.trainer.config)).train(wanted, context)  # type: ignore[arg-type]
    found = context.reports[0][1]
    assert found["grad_norm"] == pytest.approx(by_hand(tiny, corrected=version != 0), rel=1e-4)


def test_without_log_probabilities_nothing_is_corrected(tiny: Path, tmp_path: Path) -> None:
    context = Folder(tmp_path, groups(None, logprobs=False))
    train(plan(tiny), context)
    assert context.reports[0][1]["grad_norm"] == pytest.approx(by_hand(tiny, corrected=False), rel=1e-5)


def test_several_steps_on_a_batch_are_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="a batch of --from makes one step"):
        train(plan(tiny, num_iterations=2), Folder(tmp_path, groups(0)))


def test_advantages_that_came_with_the_groups_are_used(tiny: Path, tmp_path: Path) -> None:
    sent = [groups(0)[0].model_copy(update={"advantages": (0.0, 0.0, 0.0, 0.0)})]
    for choice, moves in (("auto", False), ("algorithm", True)):
        context = Folder(tmp_path / choice, sent)
        train(plan(tiny, advantages=choice), context)
        assert (context.reports[0][1]["grad_norm"] > 0) == moves
