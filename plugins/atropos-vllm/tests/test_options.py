"""Options and requests as vLLM's arguments, and its answers as ours. Needs no vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from atropos_vllm.options import VllmConfig, check_known, engine_arguments, sampling_arguments, tempered
from atropos_vllm.results import read_output

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import BackendError, Sampling


def test_options_become_the_engines_arguments() -> None:
    config = VllmConfig(max_model_len=512, dtype="bfloat16", engine={"kv_cache_dtype": "fp8"})
    found = engine_arguments(config, "folder", adopted=False)
    assert (found["model"], found["dtype"], found["max_model_len"]) == ("folder", "bfloat16", 512)
    assert (found["kv_cache_dtype"], found["load_format"], found["logprobs_mode"]) == ("fp8", "auto", "raw_logprobs")
    assert "max_num_seqs" not in found
    assert "enable_sleep_mode" not in found


def test_beside_a_trainer_the_engine_takes_less_memory_and_no_weights_from_the_disk() -> None:
    found = engine_arguments(VllmConfig(sleep=True), "folder", adopted=True)
    assert found["load_format"] == "dummy"
    assert found["enable_sleep_mode"] is True
    assert (
        found["gpu_memory_utilization"] < engine_arguments(VllmConfig(), "f", adopted=False)["gpu_memory_utilization"]
    )
    assert engine_arguments(VllmConfig(gpu_memory_utilization=0.5), "f", adopted=True)["gpu_memory_utilization"] == 0.5


@pytest.mark.parametrize(
    ("given", "adopted", "expected"),
    [("auto", True, True), ("auto", False, False), ("raw", True, False), ("tempered", False, True)],
)
def test_logprobs_are_as_trainers_compute_them_beside_a_trainer(given: Any, adopted: bool, expected: bool) -> None:
    config = VllmConfig(logprobs=given)
    assert tempered(config, adopted=adopted) is expected
    mode = engine_arguments(config, "f", adopted=adopted)["logprobs_mode"]
    assert mode == ("processed_logprobs" if expected else "raw_logprobs")


@pytest.mark.parametrize("name", ["model", "max_model_len", "tensor_parallel_size", "load_format", "seed"])
def test_arguments_that_are_ours_cannot_be_given_twice(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        engine_arguments(VllmConfig(engine={name: 1}), "folder", adopted=False)


def test_unknown_arguments_are_named_with_a_suggestion() -> None:
    check_known({"kv_cache_dtype": 1}, ["kv_cache_dtype"])
    with pytest.raises(ConfigError, match="kv_cach_dtype") as caught:
        check_known({"kv_cach_dtype": 1}, ["kv_cache_dtype", "seed"])
    assert "kv_cache_dtype" in (caught.value.hint or "")


def test_left_out_sampling_parameters_mean_the_plain_distribution() -> None:
    found = sampling_arguments(Sampling(temperature=None, max_tokens=None), limit=7, seed=5, end_ids={3, 1})
    assert found["temperature"] == 1.0
    assert (found["top_p"], found["top_k"], found["min_p"]) == (1.0, 0, 0.0)
    assert (found["max_tokens"], found["seed"], found["n"], found["logprobs"]) == (7, 5, 1, 0)
    assert found["stop_token_ids"] == [1, 3]
    assert (found["stop"], found["detokenize"]) == ([], False)


def test_sampling_parameters_keep_their_values() -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, stop=("\n", ""))
    found = sampling_arguments(sampling, limit=7, seed=5, end_ids=())
    assert (found["temperature"], found["top_p"], found["top_k"], found["min_p"]) == (0.7, 0.9, 40, 0.05)
    assert (found["stop"], found["detokenize"]) == (["\n"], True)
    assert sampling_arguments(Sampling(top_k=-1), limit=1, seed=0, end_ids=())["top_k"] == 0
    assert sampling_arguments(Sampling(), limit=1, seed=0, end_ids=(), logprobs=False)["logprobs"] is None
    assert sampling_arguments(Sampling(temperature=0.0), limit=1, seed=0, end_ids=())["temperature"] == 0.0


def output(reason: str | None, *, scored: bool = False) -> Any:
    """A RequestOutput's shape: a mapping per token, in which more likely tokens may come first."""
    entry = lambda **values: {int(k[1:]): SimpleNamespace(logprob=v) for k, v in values.items()}  # noqa: E731
    completion = SimpleNamespace(
        token_ids=[7, 9], logprobs=[entry(_4=-0.1, _7=-0.5), entry(_9=-0.25)], finish_reason=reason
    )
    prompt = [None, entry(_2=-1.0), entry(_3=-2.0, _1=-0.1)] if scored else None
    return SimpleNamespace(outputs=[completion], prompt_token_ids=[5, 2, 3], prompt_logprobs=prompt)


def test_an_answers_logprobs_are_those_of_its_own_tokens() -> None:
    sample = read_output(output("stop"))
    assert (sample.ids, sample.logprobs, sample.finish_reason) == ((7, 9), (-0.5, -0.25), "stop")
    assert sample.prompt_logprobs is None
    assert read_output(output("length", scored=True)).prompt_logprobs == (-1.0, -2.0)


def test_a_request_that_the_engine_gave_up_is_an_error() -> None:
    for reason in ("abort", "error", None):
        with pytest.raises(BackendError, match="ended a request"):
            read_output(output(reason))
