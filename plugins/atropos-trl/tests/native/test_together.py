"""Two and four processes (gloo): the losses and weights of one, on rows of any number; resumed on other numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import Folder, make_groups, make_plan, train
from safetensors.torch import load_file
from together import one, together

GROUPS = {"count": 7, "sizes": (2, 3, 5)}
STEPS = 3
KINDS: dict[str, dict[str, Any]] = {
    "dapo": {"algorithm": "dapo", "num_iterations": 2, "old_policy": "current", "micro_batch_tokens": 24},
    "lora": {"lora_r": 4, "beta": 0.1, "old_policy": "current", "gradient_checkpointing": True},
}


def job(folder: Path, tiny: Path, config: dict[str, Any], *, steps: int = STEPS, **more: Any) -> dict[str, Any]:
    plan = {"prompts_per_step": 7, "steps": steps}
    config = {"learning_rate": 0.01, **config}
    return {"folder": str(folder), "model": str(tiny), "config": config, "groups": GROUPS, "plan": plan, **more}


def numbers(told: dict[str, Any]) -> list[list[float]]:
    assert told["error"] is None
    return [[metrics["loss"], metrics["grad_norm"], metrics["rows"]] for _, metrics in told["reports"]]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def alone(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[float]]]]:
    """The same runs in one process."""
    place = tmp_path_factory.mktemp("alone")
    return place, {kind: numbers(one(job(place / kind, tiny, config))) for kind, config in KINDS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_several_processes_are_one(tiny: Path, tmp_path: Path, alone: Any, size: int) -> None:
    """Uneven rows, data-parallel and split; then a split run that is stopped goes on in one process, and a rule ends.

    Of four processes some have no row in the last micro-batches.
    """
    place, wanted = alone
    runs = [("dapo", "none"), ("dapo", "fsdp2"), ("lora", "fsdp2")]
    jobs = [job(tmp_path / f"{kind}-{how}", tiny, {**KINDS[kind], "sharding": how}) for kind, how in runs]
    if size == 2:
        split = {**KINDS["dapo"], "sharding": "fsdp2"}
        jobs.append(job(tmp_path / "stopped", tiny, split, stop_at=2))
        jobs.append(job(tmp_path / "offload", tiny, {**split, "cpu_offload": True}))
        jobs.append(job(tmp_path / "ruled", tiny, {"sharding": "fsdp2"}, fails_at=2))
    found = together(size, jobs, tmp_path / "told")
    for number, (kind, how) in enumerate(runs):
        assert numbers(found[0][number]) == [pytest.approx(row, rel=1e-5, abs=1e-6) for row in wanted[kind]], how
        expected = weights(place / kind)
        trained = weights(tmp_path / f"{kind}-{how}")
        assert trained.keys() == expected.keys()
        for name, tensor in trained.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)
    assert 1.0 <= found[0][0]["reports"][0][1]["imbalance"] < 1.5
    if size == 2:
        assert [told["stopped"] for told in (found[0][3], found[1][3])] == ["interrupted"] * 2
        assert numbers(found[0][4])[0] == pytest.approx(wanted["dapo"][0], rel=1e-5, abs=1e-6)
        assert (found[0][5]["error"], found[1][5]["stopped"]) == ("ended by a rule", "failed")
        assert (tmp_path / "ruled" / "checkpoints" / "step-2").is_dir()
        rest = numbers(one(job(tmp_path / "stopped", tiny, KINDS["dapo"], resume=True)))
        assert rest == [pytest.approx(row, rel=1e-5, abs=1e-6) for row in wanted["dapo"][2:]]
        for name, tensor in weights(tmp_path / "stopped").items():
            torch.testing.assert_close(tensor, weights(place / "dapo")[name], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_run_of_one_process_goes_on_in_two_that_share_the_weights(tiny: Path, tmp_path: Path, alone: Any) -> None:
    place, wanted = alone
    first = one(job(tmp_path / "run", tiny, KINDS["dapo"], stop_at=2))
    assert first["stopped"] == "interrupted"
    found = together(2, [job(tmp_path / "run", tiny, {**KINDS["dapo"], "sharding": "fsdp2"}, resume=True)], tmp_path)
    assert numbers(found[0][0]) == [pytest.approx(row, rel=1e-5, abs=1e-6) for row in wanted["dapo"][2:]]
    for name, tensor in weights(tmp_path / "run").items():
        torch.testing.assert_close(tensor, weights(place / "dapo")[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_follows_full_precision(tiny: Path, tmp_path: Path, precision: str) -> None:
    curves = {}
    for number in ("fp32", precision):
        context = Folder(tmp_path / number, make_groups(6, sizes=(3, 4)))
        config = {"learning_rate": 0.003, "precision": number}
        train(make_plan(tiny, config=config, prompts_per_step=6, steps=10), context)
        curves[number] = [metrics["loss"] for _, metrics in context.reports]
        assert context.reports[-1][1]["skipped_steps"] == 0
    fall = curves["fp32"][0] - curves["fp32"][-1]
    assert fall > 0
    assert curves[precision] == pytest.approx(curves["fp32"], abs=0.1 * fall)
    assert curves[precision] != curves["fp32"]


def test_an_overflow_lowers_the_scale_and_loses_no_step(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first scale that no gradient survives: the step is computed again until it fits, and a resumed run knows."""
    from atropos_trl.native import precision

    monkeypatch.setattr(precision, "_FIRST", 2.0**60)
    config = {"learning_rate": 0.003, "precision": "fp16", "old_policy": "current"}
    context = Folder(tmp_path, make_groups(5), stop_at=1)
    train(make_plan(tiny, config=config, prompts_per_step=5, steps=2), context)
    metrics = context.reports[0][1]
    assert metrics["overflows"] > 5
    assert metrics["skipped_steps"] == 0
    assert metrics["grad_norm"] > 0
    again = Folder(tmp_path, make_groups(5), resume=True)
    train(make_plan(tiny, config=config, prompts_per_step=5, steps=2), again)
    assert again.reports[0][1]["loss_scale"] <= metrics["loss_scale"] < 2.0**60
