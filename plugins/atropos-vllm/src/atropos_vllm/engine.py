"""vLLM's engine in this process: how it is built, fed, given weights, put to sleep.

It shares the process with a trainer, so that it leaves alone what belongs to that: the global random numbers,
standard output, and the module whose weights it takes.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import BackendError, FatalBackendError, RequestRejected
from atropos_cli.sdk.models import wait_passively

from .options import VllmConfig, check_known, engine_arguments
from .results import Sample, read_output
from .weights import named_weights, unwrapped

_ENVIRONMENT = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmEngine:
    """See loop.Engine; every method is called on one thread. model: the trainer's module, None to load the folder."""

    def __init__(self, config: VllmConfig, folder: str, model: Any, tokenizer: Any) -> None:
        self._model = model
        self._sleeps = config.sleep and model is not None
        self._stale = model is not None
        self._asleep = False
        self._random: contextlib.ExitStack | None = None
        self._own_folder: str | None = None
        self.handovers = 0
        self.handover_seconds = 0.0
        if model is not None:
            folder = self._own_folder = tempfile.mkdtemp(prefix="atropos-vllm-")
            describe_model(model, tokenizer, folder)
        try:
            self._engine = _build(config, folder, adopted=model is not None)
        except BaseException:
            self._remove_folder()
            raise
        model_config = self._engine.vllm_config.model_config
        self.hf_config: Any = model_config.hf_config
        self.context = int(model_config.max_model_len)
        self.vocabulary = int(model_config.get_vocab_size())
        self.dtype = str(model_config.dtype).removeprefix("torch.")
        self.quantised = model_config.quantization is not None

    @property
    def busy(self) -> bool:
        """See Engine."""
        return bool(self._engine.has_unfinished_requests())

    def prepare(self) -> None:
        """Take the trainer's weights if they may have changed. Raises FatalBackendError when they do not fit."""
        if not self._stale:
            return
        began = time.perf_counter()
        _synchronize()  # the optimiser's last kernels
        if self._asleep:
            _release_cached()  # what the trainer's allocator keeps for itself is where the engine was
            self._engine.wake_up(tags=["weights"])
        self._load(weights_iterator=named_weights(self._model))
        if self._asleep:
            self._engine.wake_up(tags=["kv_cache"])
            self._asleep = False
        _synchronize()
        self.handovers += 1
        self.handover_seconds += time.perf_counter() - began
        self._stale = False

    def outdate(self) -> None:
        """The trainer is about to change its weights: take them anew before the next request, sleep until then."""
        if self._model is None:
            raise BackendError("there is no model of this process whose weights could have changed")
        self._stale = True
        if self._sleeps and not self._asleep:
            self._engine.sleep(level=2)
            self._asleep = True

    def load_folder(self, folder: str) -> None:
        """Take the weights from a folder of the same architecture. Raises FatalBackendError when they do not fit."""
        if not (Path(folder) / "config.json").is_file():
            raise FatalBackendError(f"{folder!r} holds no model", hint="give a folder written by save_pretrained")
        self._load(weights_path=folder)

    def add(self, request_id: str, prompt: Sequence[int], arguments: dict[str, Any]) -> None:
        """See Engine."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        if self._model is not None and self._random is None:
            self._random = contextlib.ExitStack()
            self._random.enter_context(_kept_random_state())
        try:
            parameters = SamplingParams(**arguments, output_kind=RequestOutputKind.FINAL_ONLY)
            self._engine.add_request(request_id, {"prompt_token_ids": list(prompt)}, parameters)
        except (ValueError, TypeError) as error:
            raise RequestRejected(f"vLLM refuses the request: {_first_line(error)}") from error

    def abort(self, request_ids: Sequence[str]) -> None:
        """See Engine."""
        self._engine.abort_request(list(request_ids))
        self._rest()

    def step(self) -> list[tuple[str, Sample | BackendError]]:
        """See Engine."""
        ended = [(output.request_id, _answer(output)) for output in self._engine.step() if output.finished]
        self._rest()
        return ended

    def close(self) -> None:
        """Free the memory, and what the engine set up for several devices."""
        try:
            self._engine.engine_core.shutdown()
        finally:
            del self._engine
            self._remove_folder()

    def _rest(self) -> None:
        """When all requests have ended, the trainer's random numbers go on where they were: every sample has a seed."""
        if self._random is not None and not self.busy:
            self._random.close()
            self._random = None

    def _remove_folder(self) -> None:
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def _load(self, **source: Any) -> None:
        """Reload in place. A name that the engine lacks or misses would mean samples from other weights: an error."""
        loaded: set[str] = set()
        expected: set[str] = set()

        def watch(model: Any) -> None:
            expected.update(name for name, _ in model.named_parameters())
            load = model.load_weights

            def load_weights(weights: Any) -> Any:
                names = load(weights)
                loaded.update(expected if names is None else names)
                return names

            model.load_weights = load_weights

        try:
            self._engine.apply_model(watch)
            self._engine.collective_rpc("reload_weights", kwargs=source)
        except BackendError:
            raise
        except Exception as error:  # the model's loader raises whatever a strange tensor makes it raise
            raise FatalBackendError(
                f"vLLM cannot take the weights: {type(error).__name__}: {_first_line(error)}",
                hint="vLLM must know this architecture; else leave out --backend vllm",
            ) from error
        finally:
            self._engine.apply_model(_unwatch)
        missing = sorted(expected - loaded)
        if missing and not self.quantised:
            raise FatalBackendError(
                f"{len(missing)} weights of vLLM's model were not among those handed over, the first is {missing[0]}",
                hint="vLLM names this architecture's weights in another way; leave out --backend vllm",
            )
        self._engine.apply_model(_pack_again)
        self._engine.reset_prefix_cache()


def describe_model(model: Any, tokenizer: Any, folder: str) -> None:
    """Write what an engine must know of a model beside its weights: configuration and tokenizer."""
    base = unwrapped(model)
    config = copy.deepcopy(base.config)
    config.architectures = [type(base).__name__]
    config.dtype = base.dtype
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _build(config: VllmConfig, folder: str, *, adopted: bool) -> Any:
    wait_passively()
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine in this process: weights come from its memory
    with contextlib.redirect_stdout(sys.stderr):  # standard output is data
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        arguments = engine_arguments(config, folder, adopted=adopted)
        check_known(arguments, EngineArgs.__dataclass_fields__)
        if adopted and int(os.environ.get("WORLD_SIZE") or 1) > 1:
            arguments["distributed_executor_backend"] = (
                "external_launcher"  # one engine for each of the trainer's ranks
            )
        if current_platform.is_cpu() and arguments["dtype"] == "auto":
            arguments["dtype"] = "float32"
        if config.sleep:
            _check_sleep(adopted=adopted, available=current_platform.is_sleep_mode_available())
        try:
            with _kept_random_state():
                return LLMEngine.from_engine_args(EngineArgs(**arguments))
        except Exception as error:  # whatever the model, the options or the machine make it raise
            raise FatalBackendError(
                f"vLLM did not start: {type(error).__name__}: {_first_line(error)}",
                hint="VLLM_LOGGING_LEVEL=INFO in the environment shows what it does; too little memory: "
                "--backend.gpu-memory-utilization or --backend.max-model-len",
            ) from error


def _check_sleep(*, adopted: bool, available: bool) -> None:
    if not adopted:
        raise ConfigError("--backend.sleep gives memory to a trainer, and there is none", hint="leave it out")
    if not available:
        raise ConfigError("vLLM cannot sleep on this machine's devices", hint="leave out --backend.sleep")


@contextlib.contextmanager
def _kept_random_state() -> Iterator[None]:
    """vLLM seeds the global generators when it starts, and on a CPU draws from them; a trainer's stay as they are."""
    import numpy
    import torch

    python, array = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(enabled=True):
            yield
    finally:
        random.setstate(python)
        numpy.random.set_state(array)


def _unwatch(model: Any) -> None:
    with contextlib.suppress(AttributeError):
        del model.load_weights


def _pack_again(model: Any) -> None:
    """On a CPU vLLM multiplies by packed copies of weights; the one of an output layer that is the embedding is left
    as it was when new weights come."""
    for module in model.modules():
        if hasattr(module, "cpu_linear") and module.weight.numel() > 0:
            module.quant_method.process_weights_after_loading(module)


def _answer(output: Any) -> Sample | BackendError:
    try:
        return read_output(output)
    except BackendError as error:
        return error


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _release_cached() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no reason given").split("\n", 1)[0]
