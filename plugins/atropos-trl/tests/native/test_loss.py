"""Losses and advantages against the table of worked cases, and against finite sums done by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import case_tables
import pytest
import torch
from atropos_trl.native.loss import ALGORITHMS, LossSpec, kl_k3, policy_loss, row_weights, token_logps
from atropos_trl.native.rows import advantages

KINDS = {"cispo_eps": "cispo"}


def cases(function: str) -> Any:
    return case_tables.params("advantages", lambda row: row["fn"] == function)


@pytest.mark.parametrize("case", cases("policy_loss"))
def test_policy_loss(case: dict[str, Any]) -> None:
    given = case["input"]
    high = given.get("eps_high")
    if given["kind"] == "cispo":
        high = given["cispo_cap"]
    elif given["kind"] == "cispo_eps":
        high = 1 + given["eps_high"]
    spec = dataclasses.replace(
        ALGORITHMS[KINDS.get(given["kind"], given["kind"])],
        epsilon=given.get("eps_low", 0.2),
        epsilon_high=high,
        beta=given.get("beta", 0.0),
        kl_ratio=False,
        length=given.get("max_completion_length", 1),
    )
    logp = torch.tensor(given["logp"], dtype=torch.float64, requires_grad=True)
    old, mask = (torch.tensor(given[name], dtype=torch.float64) for name in ("old_logp", "mask"))
    ref = torch.tensor(given["ref_logp"], dtype=torch.float64) if "ref_logp" in given else None
    tokens = [int(n) for n in mask.sum(-1)]
    assert given.get("num_tokens_global", sum(tokens)) == sum(tokens)
    scales = tuple(torch.tensor(v, dtype=torch.float64) for v in (given["advantages"], row_weights(spec, tokens)))
    loss, _ = policy_loss(spec, logp, old, mask, scales, ref)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(case["expected"]["loss"], abs=1e-6)
    assert logp.grad is not None
    for got, wanted in zip(logp.grad.tolist(), case["expected"]["grad_logp"], strict=True):
        assert got == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("case", cases("kl_estimators"))
def test_kl(case: dict[str, Any]) -> None:
    logp, ref = (torch.tensor(case["input"][name], dtype=torch.float64) for name in ("logp", "logp_ref"))
    assert float(kl_k3(logp, ref)) == pytest.approx(case["expected"]["k3"], abs=1e-6)


@pytest.mark.parametrize("case", cases("grpo_advantage"))
def test_grpo_advantage(case: dict[str, Any]) -> None:
    given = case["input"]
    if given["scale"] == "group" and (given["ddof"], given["eps"]) != (1, 1e-4):
        pytest.skip("this trainer divides by the sample standard deviation plus 1e-4, as TRL does")
    kind = "grpo" if given["scale"] == "group" else "dr_grpo"
    assert advantages(given["rewards"], kind) == pytest.approx(case["expected"], abs=case["tol"])


@pytest.mark.parametrize("case", cases("rloo_advantage"))
def test_rloo_advantage(case: dict[str, Any]) -> None:
    given = case["input"]
    charge = [given.get("beta", 0.0) * value for value in given.get("kl_seq", [0.0] * len(given["rewards"]))]
    rewards = [reward - cost for reward, cost in zip(given["rewards"], charge, strict=True)]
    assert advantages(rewards, "rloo") == pytest.approx(case["expected"], abs=case["tol"])


def test_members_without_a_reward_count_in_no_mean() -> None:
    assert advantages([1.0, None, 0.0], "dr_grpo") == [0.5, 0.0, -0.5]
    assert advantages([0.1 + 0.2, 0.3], "grpo") == [0.0, 0.0]


def test_rloo_ratio_is_of_the_whole_row() -> None:
    """-min(w A, clip(w) A), w = exp(sum of the row's log-ratios), mean over rows."""
    logp = torch.tensor([[-1.0, -0.5, 0.0], [-0.7, -1.0, -0.3]], requires_grad=True)
    old = torch.tensor([[-1.1, -0.4, 9.0], [-0.9, -1.0, -0.2]])
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    spec = ALGORITHMS["rloo"]
    scales = (torch.tensor([1.0, -0.5]), torch.tensor(row_weights(spec, [2, 3])))
    loss, sums = policy_loss(spec, logp, old, mask, scales)
    ratios = [math.exp(0.1 - 0.1), math.exp(0.2 + 0.0 - 0.1)]
    assert float(loss.detach()) == pytest.approx(-(ratios[0] * 1.0 + ratios[1] * -0.5) / 2, abs=1e-6)
    loss.backward()
    assert logp.grad is not None
    assert logp.grad.tolist()[0] == pytest.approx([-0.5, -0.5, 0.0], abs=1e-6)
    assert logp.grad.tolist()[1] == pytest.approx([0.25 * ratios[1]] * 3, abs=1e-6)
    assert float(sums["ratio"]) == pytest.approx(2 * ratios[0] + 3 * ratios[1], abs=1e-5)


@pytest.mark.parametrize("spec", [LossSpec(aggregate=a, length=9) for a in ("rows", "tokens", "constant")])  # type: ignore[arg-type]
def test_cutting_into_micro_batches_changes_nothing(spec: LossSpec) -> None:
    torch.manual_seed(1)
    logp, old = torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 5, dtype=torch.float64)
    mask = (torch.rand(6, 5) < 0.7).double()
    advantage = torch.randn(6, dtype=torch.float64)
    weights = torch.tensor(row_weights(spec, [int(n) for n in mask.sum(-1)]), dtype=torch.float64)

    def total(cuts: list[slice]) -> float:
        parts = [policy_loss(spec, logp[c], old[c], mask[c], (advantage[c], weights[c]))[0] for c in cuts]
        return float(torch.stack(parts).sum())

    whole = total([slice(0, 6)])
    assert whole == pytest.approx(total([slice(0, 1), slice(1, 4), slice(4, 6)]), abs=1e-12)


def test_log_probabilities_are_the_models_own(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the output layer piece by piece, against a plain log-softmax over all logits."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny)
    ids = torch.randint(2, 21, (3, 9))
    attention = torch.ones_like(ids)
    attention[1, 6:] = 0
    mask = (torch.rand(3, 9) < 0.6).float() * attention
    mask[:, 0] = 0
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1] / 0.7
    wanted = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    (wanted * mask[:, 1:]).sum().backward()
    gradient = [p.grad.clone() for p in model.parameters()]
    for chunk in (1000, 4):
        monkeypatch.setattr("atropos_trl.native.loss.CHUNK", chunk)
        model.zero_grad()
        logp, found = token_logps(model, ids, attention, mask, 0.7)
        torch.testing.assert_close(logp[:, 1:], wanted * mask[:, 1:])
        torch.testing.assert_close(found[:, 1:], entropy * mask[:, 1:])
        logp.sum().backward()
        for mine, theirs in zip(model.parameters(), gradient, strict=True):
            torch.testing.assert_close(mine.grad, theirs)


def test_models_that_scale_their_logits(tiny: Any) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = Gemma2Config(vocab_size=21, head_dim=16, num_key_value_heads=1, final_logit_softcapping=0.5, **sizes)
    model = Gemma2ForCausalLM(config).eval()
    ids, ones = torch.randint(2, 21, (2, 5)), torch.ones(2, 5, dtype=torch.long)
    wanted = torch.log_softmax(model(input_ids=ids, attention_mask=ones).logits[:, :-1], -1)
    logp, _ = token_logps(model, ids, ones, ones.float(), 1.0)
    torch.testing.assert_close(logp[:, 1:], wanted.gather(-1, ids[:, 1:, None]).squeeze(-1))
