"""Weights that change while the backend runs: an adopted model of this process, and weights from a folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.sdk import user
from atropos_cli.sdk.backends import BackendError, FatalBackendError, GenerateRequest, Sampling

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.model

LONG = "The same long beginning of a prompt, kept from one request to the next. " * 2


def request(text: str = LONG, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(messages=(user(text),), seed=3, sampling=Sampling(max_tokens=8, **sampling))


@pytest.fixture
def model(tiny: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny, dtype="float32").eval()


@pytest.fixture
async def adopting(tiny: Path, model: Any) -> AsyncIterator[Any]:
    from atropos_local.backend import LocalBackend, LocalConfig
    from transformers import AutoTokenizer

    backend = LocalBackend(LocalConfig(logprobs="tempered"), model="policy")
    backend.adopt(model, AutoTokenizer.from_pretrained(tiny))
    await backend.open()
    yield backend
    await backend.close()


def shift(model: Any, amount: float = 0.2) -> None:
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * amount)


async def test_it_samples_from_the_very_module_that_was_given(
    adopting: Any, model: Any, opened: Callable[..., Any]
) -> None:
    same = await opened()
    first, plain = await adopting.generate(request()), await same.generate(request())
    assert first.completions[0].message.tokens.ids == plain.completions[0].message.tokens.ids
    shift(model)
    await adopting.update_weights(None, version=1)
    changed = await adopting.generate(request(temperature=0.0))
    again = await same.generate(request(temperature=0.0))
    assert changed.completions[0].message.tokens.ids != again.completions[0].message.tokens.ids
    assert adopting.describe()["weights_version"] == 1


async def test_prefixes_of_old_weights_are_dropped(adopting: Any, model: Any, teacher: Any) -> None:
    import torch

    await adopting.generate(request())
    shift(model)
    await adopting.update_weights(None, version=1)
    made = await adopting.generate(request(temperature=0.0))
    ids = list(made.completions[0].message.tokens.ids)
    with torch.no_grad():
        logits = model(torch.tensor([[*made.prompt_ids, *ids]]), use_cache=False).logits[0].log_softmax(-1)
    expected = [float(logits[len(made.prompt_ids) - 1 + at, token]) for at, token in enumerate(ids)]
    assert made.completions[0].message.tokens.logprobs == pytest.approx(expected, abs=1e-4)


async def test_tempered_logprobs_are_those_of_the_logits_over_the_temperature(adopting: Any, model: Any) -> None:
    import torch

    made = await adopting.generate(request(temperature=0.5))
    ids = list(made.completions[0].message.tokens.ids)
    with torch.no_grad():
        logits = model(torch.tensor([[*made.prompt_ids, *ids]]), use_cache=False).logits[0] / 0.5
    values = logits.log_softmax(-1)
    expected = [float(values[len(made.prompt_ids) - 1 + at, token]) for at, token in enumerate(ids)]
    assert made.completions[0].message.tokens.logprobs == pytest.approx(expected, abs=1e-4)


async def test_weights_from_a_folder_wait_for_running_samples_and_replace_all(
    opened: Callable[..., Any], model: Any, tmp_path: Path
) -> None:
    shift(model)
    model.save_pretrained(tmp_path / "new")
    backend = await opened()
    running = [asyncio.create_task(backend.generate(request(f"{n} {LONG}"))) for n in range(4)]
    await backend.update_weights(str(tmp_path / "new"), version=7)
    await asyncio.gather(*running)
    made = await backend.generate(request(temperature=0.0))
    fresh = await opened(model=None)
    old = await fresh.generate(request(temperature=0.0))
    assert made.completions[0].message.tokens.ids != old.completions[0].message.tokens.ids


async def test_weights_of_another_model_are_refused_and_the_old_ones_stay(
    opened: Callable[..., Any], tiny: Path, tmp_path: Path
) -> None:
    from transformers import AutoConfig, LlamaForCausalLM

    config = AutoConfig.from_pretrained(tiny)
    config.intermediate_size = 32  # all other tensors would fit
    LlamaForCausalLM(config).save_pretrained(tmp_path / "other")
    backend = await opened()
    before = await backend.generate(request(temperature=0.0))
    with pytest.raises(FatalBackendError, match="cannot be taken"):
        await backend.update_weights(str(tmp_path / "other"), version=1)
    after = await backend.generate(request(temperature=0.0))
    assert before.completions[0].message.tokens.ids == after.completions[0].message.tokens.ids


@pytest.mark.parametrize("what", ["lacks a tensor", "has one more", "cut off", "empty", "an adapter"])
async def test_weights_that_are_not_whole_are_refused_and_the_old_ones_stay(
    opened: Callable[..., Any], model: Any, tmp_path: Path, what: str
) -> None:
    """A tensor that is absent would be drawn at random."""
    from safetensors.torch import load_file, save_file

    backend, folder = await opened(), tmp_path / "new"
    before = await backend.generate(request(temperature=0.0))
    shift(model)
    if what == "an adapter":
        peft = pytest.importorskip("peft")
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj"]))
    model.save_pretrained(folder)
    if what != "an adapter":
        (file,) = folder.glob("*.safetensors")
        tensors = load_file(file)
        if what == "lacks a tensor":
            tensors.pop("model.layers.0.mlp.up_proj.weight")
        elif what == "has one more":
            tensors["model.layers.7.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"].clone()
        save_file(tensors, file, {"format": "pt"})
        if what in ("cut off", "empty"):
            file.write_bytes(file.read_bytes()[: 5000 if what == "cut off" else 0])
    with pytest.raises(FatalBackendError, match="cannot be taken") as caught:
        await backend.update_weights(str(folder), version=1)
    assert caught.value.hint
    after = await backend.generate(request(temperature=0.0))
    assert before.completions[0].message.tokens.ids == after.completions[0].message.tokens.ids


async def test_a_folder_that_is_being_removed_costs_no_memory(
    opened: Callable[..., Any], model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its configuration: transformers would make a model of the architecture's default size."""
    shift(model)
    model.save_pretrained(tmp_path / "new")
    (tmp_path / "new" / "config.json").unlink()
    backend, sizes, made = await opened(), list[int](), type(model).__init__

    def noting(self: Any, config: Any, *arguments: Any, **more: Any) -> None:
        sizes.append(config.hidden_size)
        assert config.hidden_size == model.config.hidden_size
        made(self, config, *arguments, **more)

    monkeypatch.setattr(type(model), "__init__", noting)
    await backend.update_weights(str(tmp_path / "new"), version=1)
    assert sizes == [model.config.hidden_size]


async def test_lora_layers_take_part(tiny: Path, model: Any) -> None:
    peft = pytest.importorskip("peft")
    from atropos_local.backend import LocalBackend, LocalConfig
    from transformers import AutoTokenizer

    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, task_type="CAUSAL_LM", target_modules=["q_proj"])).eval()
    backend = LocalBackend(LocalConfig(), model="policy")
    backend.adopt(wrapped, AutoTokenizer.from_pretrained(tiny))
    await backend.open()
    try:
        before = await backend.generate(request(temperature=0.0))
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.data.fill_(0.5)
        await backend.update_weights(None, version=1)
        after = await backend.generate(request(temperature=0.0))
    finally:
        await backend.close()
    assert before.completions[0].message.tokens.ids != after.completions[0].message.tokens.ids


def pause(backend: Any, reached: Callable[[list[Any]], bool], go: Callable[[Any], bool]) -> asyncio.Event:
    """Let no token more be drawn once `reached`, which the event tells, until the scheduler may `go` on."""
    scheduler, loop, event = backend._scheduler, asyncio.get_running_loop(), asyncio.Event()
    step, passed = scheduler.batch.step, False

    def paused() -> None:
        nonlocal passed
        if not passed and reached(scheduler.batch.rows):
            passed = True
            loop.call_soon_threadsafe(event.set)
            end = time.monotonic() + 60
            while not go(scheduler) and time.monotonic() < end:
                time.sleep(0.001)
        step()

    scheduler.batch.step = paused
    return event


async def test_what_waits_behind_a_change_is_of_the_new_weights(
    opened: Callable[..., Any], model: Any, tmp_path: Path
) -> None:
    import torch

    shift(model)
    model.save_pretrained(tmp_path / "new")
    backend = await opened()
    paused = pause(backend, lambda rows: bool(rows), lambda scheduler: bool(scheduler._between and scheduler._queue))
    first = asyncio.create_task(backend.generate(request()))
    await paused.wait()
    change = asyncio.create_task(backend.update_weights(str(tmp_path / "new"), version=7))
    await asyncio.sleep(0)
    second = await backend.generate(request())
    await change
    assert (await first).weights_version is None
    assert second.weights_version == 7
    tokens = second.completions[0].message.tokens
    with torch.no_grad():
        logits = model(torch.tensor([[*second.prompt_ids, *tokens.ids]])).logits[0].log_softmax(-1)
    expected = [float(logits[len(second.prompt_ids) - 1 + at, token]) for at, token in enumerate(tokens.ids)]
    assert tokens.logprobs == pytest.approx(expected, abs=1e-4)


async def test_samples_of_one_request_are_of_the_same_weights(
    opened: Callable[..., Any], model: Any, tmp_path: Path
) -> None:
    shift(model)
    model.save_pretrained(tmp_path / "new")
    backend = await opened(max_batch=1)  # one sample after the other
    paused = pause(backend, lambda rows: bool(rows), lambda scheduler: bool(scheduler._between))
    greedy = request(temperature=0.0).replace(n=3)
    before = asyncio.create_task(backend.generate(greedy))
    await paused.wait()
    await backend.update_weights(str(tmp_path / "new"), version=1)
    made = (await before).completions
    assert len(made) == 3
    assert len({completion.message.tokens.ids for completion in made}) == 1
    after = await backend.generate(greedy)
    assert after.weights_version == 1
    assert after.completions[0].message.tokens.ids != made[0].message.tokens.ids


async def test_running_samples_continue_with_the_new_weights(adopting: Any, model: Any) -> None:
    """One sample is of two models, and each of its log-probabilities is that of the model that drew the token."""
    import copy

    import torch

    old = copy.deepcopy(model)
    prompts = [f"{n} {LONG}" for n in range(3)]
    asked = [
        GenerateRequest(messages=(user(text),), seed=n, n=2, sampling=Sampling(max_tokens=60))
        for n, text in enumerate(prompts)
    ]
    batch = adopting._scheduler.batch
    paused = pause(
        adopting, lambda rows: any(len(row.ids) >= 4 for row in rows), lambda scheduler: bool(scheduler._at_once)
    )
    jobs = [asyncio.create_task(adopting.generate(one)) for one in asked]
    await paused.wait()
    await adopting.refresh(lambda: shift(model), version=5)
    assert batch.store.tokens == 0
    mixed = 0
    for made in await asyncio.gather(*jobs):
        assert made.weights_version is None  # of the first token
        for completion in made.completions:
            ids = [*made.prompt_ids, *completion.message.tokens.ids]
            at = range(len(made.prompt_ids), len(ids))
            with torch.no_grad():
                before, after = (one(torch.tensor([ids])).logits[0].log_softmax(-1) for one in (old, model))
            logprobs = torch.tensor(completion.message.tokens.logprobs)
            wanted = [torch.stack([values[i - 1, ids[i]] for i in at]) for values in (before, after)]
            switched = [
                k
                for k in range(len(at) + 1)
                if torch.allclose(torch.cat([wanted[0][:k], wanted[1][k:]]), logprobs, atol=1e-4)
            ]
            assert switched
            mixed += 0 < switched[0] < len(at)
    assert mixed
    assert (await adopting.generate(request())).weights_version == 5


async def test_a_change_that_fails_ends_what_runs(adopting: Any) -> None:
    paused = pause(adopting, lambda rows: bool(rows), lambda scheduler: bool(scheduler._at_once))
    job = asyncio.create_task(
        adopting.generate(GenerateRequest(messages=(user(LONG),), sampling=Sampling(max_tokens=60)))
    )
    await paused.wait()
    with pytest.raises(BackendError, match="ZeroDivisionError"):
        await adopting.refresh(lambda: 1 / 0, version=1)
    with pytest.raises(BackendError, match="did not change"):
        await job


async def test_only_an_adopted_model_is_refreshed(opened: Callable[..., Any]) -> None:
    with pytest.raises(FatalBackendError, match="no model of this process"):
        await (await opened()).refresh(lambda: None, version=1)
