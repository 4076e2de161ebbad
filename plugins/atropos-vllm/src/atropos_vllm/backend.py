"""The inference backend `vllm`: vLLM's engine in this process.

    backend = VllmBackend(VllmConfig(), model="Qwen/Qwen3-0.6B"); await backend.open(); await backend.generate(request)

Beside a trainer (adopt) it takes the weights out of the trainer's module before the first request after each
update_weights(None): nothing goes through a disk or a server. Prompts are rendered as by the backend `local`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from atropos_cli.sdk import ConfigError, JsonDict
from atropos_cli.sdk.backends import (
    Capabilities,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
)
from atropos_cli.sdk.models import (
    ModelSource,
    Prompts,
    StopText,
    TokenLimits,
    completion_of,
    end_ids,
    find_model,
    open_model_file,
)

from . import REQUIRES
from .engine import VllmEngine
from .loop import EngineLoop, Job
from .options import VllmConfig, sampling_arguments, score_arguments, tempered
from .results import Sample

__all__ = ["VllmBackend", "VllmConfig"]

_SEEDS = 1 << 63


class VllmBackend(InferenceBackend):
    """Generates and scores with one engine on one device, in this process."""

    name: ClassVar[str] = "vllm"
    Config = VllmConfig

    def __init__(self, config: VllmConfig, *, model: str | None = None) -> None:
        """Raises ConfigError where vLLM is not installed: a plan can be made there, and carried out elsewhere."""
        super().__init__(config, model=model)
        missing = [package for package in REQUIRES if find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"the vllm backend needs {', '.join(missing)}, not installed here",
                hint="pip install 'atropos-vllm[vllm]', best into an environment of its own: it pins torch",
            )
        self.capabilities = Capabilities(
            logprobs=True, prompt_logprobs=True, token_ids=True, tools=True, n=True, weight_sync=True, prefill=True
        )
        self._loop: EngineLoop | None = None
        self._engine: VllmEngine | None = None
        self._prompts: Prompts | None = None
        self._limits = TokenLimits(0, 0)
        self._end_ids: frozenset[int] = frozenset()
        self._adopted: tuple[Any, Any] | None = None
        self._facts: dict[str, Any] = {}

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """Take the weights from a torch module of this process, LoRA layers merged into a copy of what they change."""
        self._adopted = (model, tokenizer)
        self.model = self.model or str(getattr(model.config, "_name_or_path", "") or "adopted")

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Start the engine on its thread. Raises ConfigError without a model, FatalBackendError otherwise."""
        if not self.model:
            raise ConfigError("the vllm backend needs a model", hint="give --model OWNER/NAME or a folder")
        source = None if self._adopted is not None else _resolve(self.model)
        loop = EngineLoop(partial(self._load, source))
        loop.start()
        self._loop = loop
        try:
            await asyncio.wrap_future(loop.ready)
        except BaseException:
            loop.close()
            raise

    async def close(self) -> None:
        """Stop the engine after its step at hand and free its memory."""
        loop, self._loop = self._loop, None
        if loop is not None:
            await asyncio.to_thread(loop.close)
        self._engine = None

    async def generate(self, request: GenerateRequest) -> Generation:
        """Sample n replies; a cancelled call leaves the engine at its next step."""
        _, _, prompts = self._opened()
        prompt = request.prompt_ids
        if prompt is None:
            prompt = prompts.encode(request.messages, request.prefill, request.tools)
        limit = self._limits.room(prompt, request.sampling.max_tokens)
        seed = secrets.randbits(31) if request.seed is None else request.seed
        keep = request.logprobs != "off"
        asked = partial(sampling_arguments, request.sampling, limit=limit, end_ids=self._end_ids, logprobs=keep)
        arguments = [asked(seed=(seed + number) % _SEEDS) for number in range(request.n)]
        samples = await self._run(Job(prompt, arguments))
        stop = StopText(prompts, request.sampling.stop)
        return Generation(
            completions=tuple(completion_of(sample, prompts, stop, with_tokens=keep) for sample in samples),
            prompt_ids=prompt if keep else None,
            prompt_tokens=len(prompt),
            weights_version=self._facts.get("weights_version"),
        )

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Raw log-probability of each continuation token. The prefix needs at least one token."""
        self._opened()
        prefix, continuation = tuple(prefix_ids), tuple(continuation_ids)
        if not continuation:
            return []
        self._limits.check_score(prefix, continuation, spare=1)
        (sample,) = await self._run(Job((*prefix, *continuation), [score_arguments()]))
        assert sample.prompt_logprobs is not None
        return sample.prompt_logprobs[len(prefix) - 1 :]

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text; special tokens written in it become what they are, none is added."""
        return self._opened()[2].ids(text)

    async def update_weights(self, source: str | None, *, version: int, loaded: bool = False) -> None:
        """See the port. Waits for the samples that run.

        Without a source the module's weights are taken before the next request, as they are then: a trainer that
        calls this when it has sampled, and then changes them, needs no second call.
        """
        loop, engine, _ = self._opened()
        work = engine.outdate if source is None else partial(engine.load_folder, source)
        await asyncio.wrap_future(loop.between(work))
        self._facts["weights_version"] = version

    async def probe(self) -> bool:
        """Is the engine's thread alive?"""
        return self._loop is not None and self._loop.alive

    def describe(self) -> JsonDict:
        """Model, number format and versions; how logprobs are defined; what handing over weights took."""
        facts = {**super().describe(), **self._facts}
        if self._engine is not None and self._engine.handovers:
            facts["weight_handovers"] = self._engine.handovers
            facts["weight_handover_seconds"] = round(self._engine.handover_seconds / self._engine.handovers, 4)
        return facts

    async def _run(self, job: Job) -> list[Sample]:
        loop, _, _ = self._opened()
        loop.submit(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.future.cancel()
            loop.cancelled()
            raise

    def _opened(self) -> tuple[EngineLoop, VllmEngine, Prompts]:
        if self._loop is None or self._engine is None or self._prompts is None:
            raise FatalBackendError("the vllm backend is not open")
        return self._loop, self._engine, self._prompts

    def _load(self, source: ModelSource | None) -> VllmEngine:
        """Everything slow; runs on the engine's thread."""
        config: VllmConfig = self.config
        model, tokenizer = self._adopted or (None, None)
        folder = "" if source is None else _folder(source)
        label = str(self.model) if source is None else source.label
        if source is not None:
            tokenizer = _tokenizer(source, folder)
        prompts = Prompts(tokenizer, config.chat_template, model=label)
        engine = VllmEngine(config, folder, model, tokenizer)
        generation = getattr(model, "generation_config", None) if source is None else _generation_config(folder)
        self._end_ids = frozenset(end_ids(generation, engine.hf_config, tokenizer))
        self._limits = TokenLimits(engine.context, engine.vocabulary)
        self._facts = {
            "model": label,
            "dtype": engine.dtype,
            "context": engine.context,
            "chat_template": config.chat_template if prompts.plain else "chat",
            "logprobs": "tempered" if tempered(config, adopted=source is None) else "raw",
            "vllm": version_of("vllm"),
        }
        self._prompts, self._engine = prompts, engine
        return engine


def _resolve(name: str) -> ModelSource:
    try:
        return find_model(name)
    except ConfigError as error:
        raise FatalBackendError(error.message, hint=error.hint) from error


def _folder(source: ModelSource) -> str:
    """What vLLM loads: a GGUF file as the dequantised copy of it."""
    if source.kind != "gguf":
        return source.location
    try:
        return str(open_model_file(Path(source.location)).folder())
    except ConfigError as error:
        raise FatalBackendError(error.message, hint=error.hint) from error


def _tokenizer(source: ModelSource, folder: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=source.kind != "hub", trust_remote_code=False
        )
    except Exception as error:  # the loader raises whatever a damaged or unknown tokenizer makes it raise
        first_line = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
        raise FatalBackendError(
            f"model {source.label!r} has no usable tokenizer: {first_line}",
            hint="put the tokenizer's files (tokenizer.json, tokenizer_config.json) beside config.json",
        ) from error
    if tokenizer.chat_template is None and source.template is not None:
        tokenizer.chat_template = source.template
    return tokenizer


def _generation_config(folder: str) -> Any:
    from transformers import GenerationConfig

    with contextlib.suppress(OSError):
        return GenerationConfig.from_pretrained(folder)
    return None
