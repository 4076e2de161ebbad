"""One step of the trainer against sums written out here, token by token, with nothing of the trainer's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import Folder, make_groups, make_plan, rollout, span, train

from atropos_cli.sdk import ScoredGroup, Task, user
from atropos_cli.sdk.training import TrainerError


def by_hand(model: Any, sequences: list[dict[str, Any]], norm: float) -> tuple[float, float]:
    """Loss and gradient norm of -sum(min(w A, clip(w, .8, 1.2) A)) / norm, a token at a time."""
    total = torch.zeros(())
    for sequence in sequences:
        ids = sequence["ids"]
        logps = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
        for t, trained in enumerate(sequence["mask"]):
            if trained:
                logp = logps[t - 1, ids[t]]
                before = sequence["logprobs"][t] if sequence.get("logprobs") else logp.detach()
                w, a = (logp - before).exp(), sequence["advantage"]
                total = total - torch.min(w * a, w.clamp(0.8, 1.2) * a) / norm
    total.backward()
    norms = [p.grad.double().norm() ** 2 for p in model.parameters() if p.grad is not None]
    return float(total.detach()), math.sqrt(float(sum(norms)))


def sequences_of(groups: list[ScoredGroup], *, behaviour: bool) -> list[dict[str, Any]]:
    """Concatenates the spans as they lie in the messages."""
    found = []
    for group in groups:
        rewards = [r.reward for r in group.rollouts]
        mean = sum(rewards) / len(rewards)  # type: ignore[arg-type]
        for member in group.rollouts:
            ids, mask, logprobs = [], [], []
            for message in member.messages:
                tokens = message.tokens
                assert tokens is not None
                ids += tokens.ids
                mask += [tokens.mask] * len(tokens.ids)
                logprobs += tokens.logprobs or [0.0] * len(tokens.ids)
            row = {"ids": ids, "mask": mask, "advantage": member.reward - mean}  # type: ignore[operator]
            found.append(row | ({"logprobs": logprobs} if behaviour else {}))
    return found


def load(tiny: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny)


@pytest.mark.parametrize("behaviour", [True, False])
@pytest.mark.parametrize("micro", [8192, 24])
def test_exactly_the_sampled_tokens_carry_gradient(tiny: Path, tmp_path: Path, behaviour: bool, micro: int) -> None:
    """Groups of 2, 3 and 5 rollouts of one and two turns; context between the turns is not trained on."""
    groups = make_groups(6, sizes=(2, 3, 5))
    config = {
        "algorithm": "dr_grpo",
        "max_completion_length": 8,
        "old_policy": "behaviour" if behaviour else "current",
        "micro_batch_tokens": micro,
    }
    context = Folder(tmp_path, groups)
    train(make_plan(tiny, config=config, prompts_per_step=6), context)
    sequences = sequences_of(groups, behaviour=behaviour)
    loss, norm = by_hand(load(tiny), sequences, norm=len(sequences) * 8)
    ((_, reported),) = context.reports
    assert reported["loss"] == pytest.approx(loss, abs=1e-6)
    assert reported["grad_norm"] == pytest.approx(norm, rel=1e-5)
    # One more or one less token would have been seen.
    row = next(row for row in sequences if row["advantage"])
    row["mask"] = [False, *[True] * (len(row["mask"]) - 1)]
    row["logprobs"] = [-3.0] * len(row["ids"])
    assert by_hand(load(tiny), sequences, norm=len(sequences) * 8)[1] != pytest.approx(norm, rel=1e-3)


def test_importance_correction_changes_the_gradient_as_computed_by_hand(tiny: Path, tmp_path: Path) -> None:
    groups = make_groups(4)
    norms = {}
    for policy in ("behaviour", "current"):
        context = Folder(tmp_path / policy, groups)
        config = {"algorithm": "dr_grpo", "max_completion_length": 8, "old_policy": policy}
        train(make_plan(tiny, config=config, prompts_per_step=4), context)
        norms[policy] = context.reports[0][1]["grad_norm"]
        sequences = sequences_of(groups, behaviour=policy == "behaviour")
        assert norms[policy] == pytest.approx(by_hand(load(tiny), sequences, norm=16 * 8)[1], rel=1e-5)
    assert abs(norms["behaviour"] - norms["current"]) > 1e-3 * norms["current"]  # a hundred times what is allowed above


def test_behaviour_without_logprobs_is_an_error(tiny: Path, tmp_path: Path) -> None:
    groups = make_groups(2, logprobs=False)
    with pytest.raises(TrainerError, match="8 of 8 rows lack the log-probabilities") as caught:
        train(make_plan(tiny, prompts_per_step=2), Folder(tmp_path, groups))
    assert "--old-policy current" in str(caught.value.hint)


def test_restarted_turns_are_rows_of_their_own(tiny: Path, tmp_path: Path) -> None:
    """An environment that rewrites its history: two sequences of one rollout, one advantage."""

    def member(name: str, reward: float) -> Any:
        first = [("user", span([3, 4], False)), ("assistant", span([5, 6], True, [-3.0, -3.0]))]
        again = [
            ("user", span([7, 8, 9], False, restart=True)),
            ("assistant", span([2 + int(reward), 4], True, [-3.0, -3.0])),
        ]
        return rollout(name, [*first, *again], reward)

    task = Task(id="t", prompt=(user("x"),))
    members = (member("t/0", 1.0), member("t/1", 0.0))
    group = ScoredGroup(group_id="d-0", env="e", task=task, rollouts=members, model="m")
    context = Folder(tmp_path, [group])
    train(make_plan(tiny, config={"algorithm": "dr_grpo", "max_completion_length": 4}, prompts_per_step=1), context)
    logprobs = [0.0, 0.0, -3.0, -3.0]
    rows = []
    for reward in (1, 0):
        advantage = reward - 0.5
        rows.append({"ids": [3, 4, 5, 6], "mask": [0, 0, 1, 1], "advantage": advantage, "logprobs": logprobs})
        second = {"ids": [7, 8, 9, 2 + reward, 4], "mask": [0, 0, 0, 1, 1], "logprobs": [0.0, *logprobs]}
        rows.append(second | {"advantage": advantage})
    assert context.reports[0][1]["rows"] == 4
    assert context.reports[0][1]["grad_norm"] == pytest.approx(by_hand(load(tiny), rows, norm=4 * 4)[1], rel=1e-5)


def test_own_advantages_are_used_as_they_are(tiny: Path, tmp_path: Path) -> None:
    (group,) = make_groups(1)
    values = (0.3, -2.0, 0.0, 1.1)
    context = Folder(tmp_path, [group.replace(advantages=values)])
    config = {"algorithm": "dr_grpo", "max_completion_length": 8, "advantages": "own"}
    train(make_plan(tiny, config=config, prompts_per_step=1), context)
    rows = sequences_of([group], behaviour=True)
    for row, value in zip(rows, values, strict=True):
        row["advantage"] = value
    assert context.reports[0][1]["grad_norm"] == pytest.approx(by_hand(load(tiny), rows, norm=4 * 8)[1], rel=1e-5)
    with pytest.raises(TrainerError, match="'d-0' carries no advantages"):
        train(make_plan(tiny, config=config, prompts_per_step=1), Folder(tmp_path / "2", [group]))


def test_cut_completions_count_in_the_mean_and_carry_no_loss_when_masked(tiny: Path, tmp_path: Path) -> None:
    """Field case F07."""
    (group,) = make_groups(1, seed=3)
    members = list(group.rollouts)
    members[0] = members[0].replace(stop_reason="length")
    group = group.replace(rollouts=tuple(members))
    config = {"algorithm": "dr_grpo", "max_completion_length": 8, "mask_truncated": True}
    context = Folder(tmp_path, [group])
    train(make_plan(tiny, config=config, prompts_per_step=1), context)
    rows = sequences_of([group], behaviour=True)
    rows[0]["mask"] = [False] * len(rows[0]["mask"])
    assert context.reports[0][1]["completions/clipped_ratio"] == 0.25
    assert context.reports[0][1]["grad_norm"] == pytest.approx(by_hand(load(tiny), rows, norm=4 * 8)[1], rel=1e-5)


def test_the_kl_term_pulls_back_to_the_reference(tiny: Path, tmp_path: Path) -> None:
    """All rewards equal: what moves is only the KL, which is 0 at the start and falls again after a push."""
    groups = [g.replace(rollouts=tuple(r.replace(reward=0.0) for r in g.rollouts)) for g in make_groups(4)]
    context = Folder(tmp_path, groups)
    config = {"beta": 0.1, "old_policy": "current", "allow_constant_reward": True}
    train(make_plan(tiny, config=config, prompts_per_step=4), context)
    assert context.reports[0][1]["kl"] == pytest.approx(0.0, abs=1e-7)
    assert context.reports[0][1]["grad_norm"] == pytest.approx(0.0, abs=1e-6)
    assert context.reports[0][1]["frac_reward_zero_std"] == 1.0
    context = Folder(tmp_path / "pushed", make_groups(4))
    config = {"beta": 0.1, "old_policy": "current", "learning_rate": 0.01}
    train(make_plan(tiny, config=config, prompts_per_step=4, steps=6), context)
    assert context.reports[-1][1]["kl"] > 0.001


def test_the_defaults_of_a_small_gpu_change_no_gradient(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer tokens at a time, and activations computed again."""
    from atropos_trl.common import machine

    from atropos_cli.sdk.training import cpu_profile

    small = replace(cpu_profile(), tokens=24, checkpointing=True)
    found = {}
    for name, profile in (("large", cpu_profile()), ("small", small)):
        monkeypatch.setattr(machine, "profile_of", lambda device, profile=profile: profile)
        context = Folder(tmp_path / name, make_groups(6, sizes=(2, 3, 5)))
        train(make_plan(tiny, config={"old_policy": "behaviour"}, prompts_per_step=6), context)
        again = any(getattr(part, "gradient_checkpointing", False) for part in context.model.modules())
        assert again == profile.checkpointing
        found[name] = context.reports[0][1]
    for key in ("loss", "grad_norm"):
        assert found["small"][key] == pytest.approx(found["large"][key], rel=1e-4, abs=1e-7)
