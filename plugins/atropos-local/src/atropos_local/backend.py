"""The inference backend `local`: a transformers model in this process.

    backend = LocalBackend(LocalConfig(), model="smollm2"); await backend.open(); await backend.generate(request)

Concurrent requests are batched (see scheduler and batching). Each reply carries the sampled token ids,
the end token included when it was sampled, and the raw log-probability of each (see sampling).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from atropos_cli.sdk import Config, ConfigError, Field, JsonDict, clean_text
from atropos_cli.sdk.backends import (
    Capabilities,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    RequestRejected,
)
from atropos_cli.sdk.models import ModelSource, Prompts, StopText, TokenLimits, completion_of, end_ids, wait_passively

from . import REQUIRES
from .batching import Batch, GenerateJob, ScoreJob
from .decoder import Decoder
from .models import Loaded, load, load_weights, resolve
from .picking import Picks
from .runtime import free_memory, pick_device, pick_dtype, pick_threads
from .sampling import Choice
from .scheduler import Scheduler

for _package in REQUIRES:
    if find_spec(_package) is None:  # found out here, the plan already fails, with the command that installs it
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

_CPU_ROWS, _GPU_ROWS = 32, 128
_CPU_SHARE, _GPU_SHARE = 0.25, 0.6
_KEPT_SHARE = 0.1
_KEPT_BYTES = 1 << 30
_UNLIMITED = 10**9


class LocalConfig(Config):
    """Options of the backend `local`."""

    device: str = Field(default="auto", description="auto, cpu, cuda, cuda:N or mps; auto takes a GPU if there is one.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Number format; auto is float32 on a CPU and bfloat16 on a GPU that has it."
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="CPU threads; default: the CPUs not busy at the start, or what torch takes above 8 CPUs.",
    )
    chat_template: str = Field(
        default="auto",
        description="auto: the model's own; plain: contents joined by blank lines, for base models and few-shot "
        "prompts; or the path of a Jinja template.",
    )
    context: int | None = Field(
        default=None, ge=2, description="Most tokens of prompt and completion together; default: the model's."
    )
    max_batch: int | None = Field(
        default=None, ge=1, description="Samples that run at a time; default: 32 on a CPU, 128 on a GPU."
    )
    max_batch_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Positions that all running samples may hold together, which bounds the memory; "
        "default: a quarter of the free memory on a CPU, 60 % on a GPU.",
    )
    prefix_cache_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Positions kept of finished samples, so that a next turn need not be computed from its start; "
        "0 keeps none; default: a tenth of the free memory, at most 1 GiB.",
    )
    logprobs: Literal["raw", "tempered"] = Field(
        default="raw",
        description="raw: of the model's own distribution; tempered: after the temperature, as trainers compute it.",
    )
    gguf_cache: bool = Field(
        default=True, description="Keep a dequantised copy of a GGUF file in the user's cache folder."
    )


class LocalBackend(InferenceBackend):
    """Generates and scores with one model on one device; see the module."""

    name: ClassVar[str] = "local"
    Config = LocalConfig

    def __init__(self, config: LocalConfig, *, model: str | None = None) -> None:
        super().__init__(config, model=model)
        self.capabilities = Capabilities(
            logprobs=True,
            prompt_logprobs=True,
            token_ids=True,
            tools=True,
            n=True,
            weight_sync=True,
            prefill=True,
            choices=True,
        )
        self._scheduler: Scheduler | None = None
        self._prompts: Prompts | None = None
        self._facts: dict[str, Any] = {}
        self._limits = TokenLimits(0, 0)
        self._adopted: Loaded | None = None
        self._ends: set[int] = set()

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """Sample from a torch module of this process, on its own device, with any LoRA layers in place."""
        base = getattr(model, "get_base_model", None)
        self._adopted = Loaded(model if base is None else base(), tokenizer)
        self.model = self.model or str(getattr(model.config, "_name_or_path", "") or "adopted")

    async def update_weights(self, source: str | None, *, version: int, loaded: bool = False) -> None:
        """See the port. Waits for the samples that run, then lets go of all keys and values and their memory."""
        scheduler, _ = self._opened()

        def work(batch: Batch) -> None:
            if source is not None:
                load_weights(batch.decoder.model, source)
            batch.forget()
            batch.version = version

        await asyncio.wrap_future(scheduler.between(work))
        self._facts["weights_version"] = version

    async def refresh(self, change: Callable[[], None], *, version: int) -> None:
        """See the port. The samples that run are computed again up to where they are, between two of their tokens."""
        scheduler, _ = self._opened()
        if self._adopted is None:
            raise FatalBackendError("the local backend has no model of this process to take weights from")

        def work(batch: Batch) -> None:
            change()
            batch.renew()
            batch.version = version

        await asyncio.wrap_future(scheduler.between(work, wait=False))
        self._facts["weights_version"] = version

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Load the model on the worker thread. Raises ConfigError without a model, FatalBackendError otherwise."""
        if not self.model:
            raise ConfigError("the local backend needs a model", hint="give --model smollm2, a folder or a .gguf file")
        source = None if self._adopted is not None else resolve(self.model)
        scheduler = Scheduler(partial(self._load, source))
        scheduler.start()
        self._scheduler = scheduler
        try:
            await asyncio.wrap_future(scheduler.ready)
        except BaseException:
            scheduler.close()
            raise

    async def close(self) -> None:
        """Stop the worker thread after its step at hand and free the model."""
        scheduler, self._scheduler = self._scheduler, None
        if scheduler is not None:
            await asyncio.to_thread(scheduler.close)

    async def generate(self, request: GenerateRequest) -> Generation:
        """Sample n replies; a cancelled call leaves the batch at its next step."""
        scheduler, prompts = self._opened()
        prompt = request.prompt_ids
        if prompt is None:
            prompt = prompts.encode(request.messages, request.prefill, request.tools)
        limit = self._limits.room(prompt, request.sampling.max_tokens)
        stop = StopText(prompts, () if request.choices else request.sampling.stop)  # which are whole as they are
        choice = Choice.of(request.sampling)
        picks = self._picks(request.choices, prompts) if request.choices else None
        job = GenerateJob(prompt, request.n, limit, choice, request.seed, stop, picks)
        scheduler.submit(job)
        samples = await asyncio.wrap_future(job.future)
        keep = request.logprobs != "off"
        return Generation(
            completions=tuple(completion_of(sample, prompts, stop, with_tokens=keep) for sample in samples),
            prompt_ids=prompt if keep else None,
            prompt_tokens=len(prompt),
            weights_version=job.version,
        )

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Raw log-probability of each continuation token. The prefix needs at least one token."""
        scheduler, _ = self._opened()
        prefix, continuation = tuple(prefix_ids), tuple(continuation_ids)
        if not continuation:
            return []
        self._limits.check_score(prefix, continuation)
        job = ScoreJob(prefix, continuation)
        scheduler.submit(job)
        return await asyncio.wrap_future(job.future)

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text; special tokens written in it become what they are, none is added."""
        _, prompts = self._opened()
        return prompts.ids(text)

    async def probe(self) -> bool:
        """Is the worker thread alive?"""
        return self._scheduler is not None and self._scheduler.alive

    def describe(self) -> JsonDict:
        """Model, device, number format and versions; how logprobs are defined."""
        return {**super().describe(), **self._facts}

    def _opened(self) -> tuple[Scheduler, Prompts]:
        if self._scheduler is None or self._prompts is None:
            raise FatalBackendError("the local backend is not open")
        return self._scheduler, self._prompts

    def _picks(self, texts: Sequence[str], prompts: Prompts) -> Picks:
        """What the replies may be. Raises FatalBackendError where nothing ends one, RequestRejected for a bad text."""
        if not self._ends:
            raise FatalBackendError("the model has no end token, so it cannot be held to given replies")
        texts = [clean_text(text) for text in texts]
        ids = [prompts.ids(text) for text in texts]
        for text, tokens in zip(texts, ids, strict=True):
            if not self._ends.isdisjoint(tokens):
                raise RequestRejected(f"the model would end inside of the reply {text!r:.80}: it holds an end token")
            if (read := prompts.decode(tokens)).strip() != text.strip():  # a special token's name, mostly
                raise RequestRejected(f"the model cannot reply {text!r:.80}: in its tokens this is {read!r:.80}")
        return Picks(ids, self._ends)

    def _loaded(self, source: ModelSource | None) -> Loaded:
        """The adopted model, or the one that `source` names. Threads are the trainer's choice for an adopted one."""
        if source is None:
            assert self._adopted is not None
            return self._adopted
        config: LocalConfig = self.config
        wait_passively()
        import torch

        threads = pick_threads(config.threads)
        if threads is not None:
            torch.set_num_threads(threads)
        device = pick_device(config.device)
        return load(source, device=device, dtype=pick_dtype(config.dtype, device), use_cache=config.gguf_cache)

    def _load(self, source: ModelSource | None) -> Batch:
        """Everything slow; runs on the worker thread."""
        config: LocalConfig = self.config
        loaded = self._loaded(source)
        import torch

        device, dtype = loaded.model.device, loaded.model.dtype
        label = source.label if source is not None else str(self.model)
        self._prompts = Prompts(loaded.tokenizer, config.chat_template, model=label)
        context = _context(loaded, config.context)
        decoder = Decoder(loaded.model, device=device, context=context, max_tokens=_UNLIMITED)
        decoder.check()
        self._limits = TokenLimits(context, min(decoder.embedded, decoder.vocabulary))
        batch = self._batch(decoder, loaded)
        self._facts = {
            "model": label,
            "device": str(device) if device.type != "cuda" else torch.cuda.get_device_name(device),
            "threads": torch.get_num_threads(),
            "dtype": str(dtype).removeprefix("torch."),
            "context": context,
            "chat_template": config.chat_template if self._prompts.plain else "chat",
            "max_batch": batch.max_rows,
            "max_batch_tokens": decoder.rows.max_tokens,
            "prefix_cache_tokens": batch.store.max_tokens,
            "logprobs": config.logprobs,
            "torch": torch.__version__,
            "transformers": _version("transformers"),
        }
        return batch

    def _batch(self, decoder: Decoder, loaded: Loaded) -> Batch:
        config: LocalConfig = self.config
        self._ends = end_ids(getattr(loaded.model, "generation_config", None), loaded.model.config, loaded.tokenizer)
        gpu = decoder.device.type == "cuda"
        free, each = free_memory(decoder.device), max(1, decoder.rows.bytes_per_token)
        kept = config.prefix_cache_tokens
        if kept is None:
            kept = int(min(_KEPT_BYTES, free * _KEPT_SHARE) // each)
        tokens = config.max_batch_tokens
        if tokens is None:
            tokens = int(free * (_GPU_SHARE if gpu else _CPU_SHARE) // each)
        decoder.rows.max_tokens = max(1, tokens)
        rows = config.max_batch or (_GPU_ROWS if gpu else _CPU_ROWS)
        return Batch(
            decoder,
            end_ids=self._ends,
            max_rows=rows,
            kept_tokens=kept,
            tempered=config.logprobs == "tempered",
        )


def _context(loaded: Loaded, wanted: int | None) -> int:
    own: Any = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(own, int) or own < 2:
        own = None
    if wanted is not None:
        return min(wanted, own) if own else wanted
    if own is None:
        raise FatalBackendError(
            "the model does not say how long its context is",
            hint="give --backend.context TOKENS",
        )
    return int(own)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
