"""The inference backend `tinker`: samples of a server that speaks the Tinker API.

Beside the trainer `tinker` (adopt) it samples from the weights that are trained. Alone it samples from a base model of
the server, or from a checkpoint there. Prompts are rendered here, by the tokenizer of --model, as by `local`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from atropos_cli.sdk import Config, ConfigError, Field, JsonDict
from atropos_cli.sdk.backends import (
    BackendError,
    Capabilities,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    RequestRejected,
    Sampling,
    ServerUnavailable,
    TransientBackendError,
)
from atropos_cli.sdk.models import Prompts, StopText, TokenLimits, completion_of
from atropos_cli.sdk.training import TrainerError

from .config import ADDRESS, KEY
from .policy import Policy
from .service import Gone, Service
from .tokens import Words, load_words

_LOOK_EVERY = 5.0


class TinkerBackendConfig(Config):
    """Options of the backend `tinker`."""

    base_url: str | None = ADDRESS
    api_key_env: str = KEY
    base_model: str | None = Field(default=None, description="The server's name for the model; default: --model.")
    weights: str | None = Field(
        default=None, description="Checkpoint of the server to sample from: tinker://RUN/sampler_weights/NAME."
    )
    chat_template: str = Field(
        default="auto",
        description="auto: the model's own; plain: contents joined by blank lines, for base models and few-shot "
        "prompts; or the path of a Jinja template.",
    )


@dataclass(frozen=True, slots=True)
class _Sample:
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    finish_reason: str | None


class TinkerBackend(InferenceBackend):
    """Samples on a server; see the module."""

    name: ClassVar[str] = "tinker"
    Config = TinkerBackendConfig

    def __init__(self, config: TinkerBackendConfig, *, model: str | None = None) -> None:
        super().__init__(config, model=model)
        self.capabilities = Capabilities(
            logprobs=True, prompt_logprobs=True, token_ids=True, tools=True, n=True, prefill=True
        )
        self._policy: Policy | None = None
        self._service: Service | None = None
        self._words: Words | None = None
        self._sampler: Any = None

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """Sample from the weights of the trainer `tinker`. Raises BackendError for a module of this process."""
        if not isinstance(model, Policy):
            raise BackendError("the backend tinker samples from a server's weights", hint="--trainer tinker")
        if self.config.base_url is not None or self.config.weights is not None:
            raise ConfigError(
                "beside --trainer tinker the backend samples from the weights that are trained",
                hint="give --base-url to the trainer; leave out --backend.base-url and --backend.weights",
            )
        self._policy, self._words, self._service = model, tokenizer, model.service
        self.model = self.model or model.base_model

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Connect. Raises ConfigError without a model, ServerUnavailable where no server is."""
        if not self.model:
            raise ConfigError("the backend tinker needs a model", hint="give --model, whose tokenizer it takes")
        if self._words is None:
            await asyncio.to_thread(self._connect, self.model)
        assert self._words is not None
        self._prompts = Prompts(self._words.tokenizer, self.config.chat_template, model=self.model)
        self._limits = TokenLimits(self._words.context, self._words.vocabulary)

    def _connect(self, model: str) -> None:
        config: TinkerBackendConfig = self.config
        service = Service(config.base_url, config.api_key_env)
        try:
            service.connect()
            name = service.model(config.base_model or model)
            words = load_words(model, service.contexts[name])
            source = {"base_model": name} if config.weights is None else {"model_path": config.weights}
            self._sampler = service.wait(lambda: service.client.create_sampling_client(**source))
        except TrainerError as error:
            raise FatalBackendError(error.message, hint=error.hint) from error
        self._service, self._words = service, words

    async def close(self) -> None:
        """The session at the server ends with the process."""
        self._sampler = None

    async def generate(self, request: GenerateRequest) -> Generation:
        """Sample n replies."""
        sampler = self._sampling()
        assert self._words is not None
        prompt = request.prompt_ids
        if prompt is None:
            prompt = self._prompts.encode(request.messages, request.prefill, request.tools)
        limit = self._limits.room(prompt, request.sampling.max_tokens)
        parameters = _parameters(request.sampling, limit, request.seed, self._words.ends)
        stop = StopText(self._prompts, request.sampling.stop)
        answer = await self._ask(lambda: sampler.sample(_input(prompt), request.n, parameters))
        keep = request.logprobs != "off"
        samples = [_cut(_sample(one), stop) for one in answer.sequences]
        return Generation(
            completions=tuple(completion_of(one, self._prompts, stop, with_tokens=keep) for one in samples),
            prompt_ids=prompt if keep else None,
            prompt_tokens=len(prompt),
        )

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probability of each continuation token. The prefix needs at least one token."""
        sampler = self._sampling()
        prefix, continuation = tuple(prefix_ids), tuple(continuation_ids)
        if not continuation:
            return []
        self._limits.check_score(prefix, continuation, spare=1)
        values = await self._ask(lambda: sampler.compute_logprobs(_input((*prefix, *continuation))))
        wanted = list(values)[-len(continuation) :]
        if len(wanted) != len(continuation) or any(value is None for value in wanted):
            raise BackendError("the server gave no log-probabilities of the prompt")
        return [float(value) for value in wanted]

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text; special tokens written in it become such tokens, none is added."""
        self._sampling()
        return self._prompts.ids(text)

    async def update_weights(self, source: str | None, *, version: int, loaded: bool = False) -> None:
        """The trainer renews the sampler before it rolls: nothing is left to do. No folder can be sent."""
        if source is not None:
            raise BackendError("the Tinker API takes no weights from outside")

    async def probe(self) -> bool:
        """Does the server answer?"""
        return self._service is not None and await asyncio.to_thread(self._service.answers)

    def describe(self) -> JsonDict:
        """Server, client and the weights."""
        found = super().describe()
        if self._service is not None:
            found |= self._service.describe()
        return {**found, "weights": self.config.weights} if self.config.weights else found

    async def _ask(self, ask: Callable[[], Any]) -> Any:
        service = self._service
        assert service is not None
        answer = asyncio.wrap_future(service.submit(lambda: ask().result()))
        try:
            while not (await asyncio.wait({answer}, timeout=_LOOK_EVERY))[0]:
                await asyncio.to_thread(service.watch)
            return answer.result()
        except Exception as problem:
            error = service.error(problem)
            if isinstance(error, ServerUnavailable) and self._policy is not None:
                raise Gone(error.message, hint=error.hint) from problem
            if isinstance(error, ConfigError):
                raise FatalBackendError(error.message, hint=error.hint) from problem
            if isinstance(error, TrainerError):
                raise TransientBackendError(error.message, hint=error.hint) from problem
            raise error from problem

    def _sampling(self) -> Any:
        sampler = self._policy.sampler if self._policy is not None else self._sampler
        if sampler is None or self._words is None:
            raise FatalBackendError("the backend tinker is not open")
        return sampler


def _input(ids: Sequence[int]) -> Any:
    import tinker

    return tinker.ModelInput.from_ints(list(ids))


def _parameters(sampling: Sampling, limit: int, seed: int | None, ends: Sequence[int]) -> Any:
    """Stop texts are found here: servers take either texts or tokens, and without the end tokens some never stop."""
    import tinker

    if sampling.min_p:
        raise RequestRejected("the Tinker API has no --min-p", hint="leave it out")
    given = {
        name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(sampling, name)) is not None
    }
    seed = secrets.randbits(31) if seed is None else seed % 2**31
    return tinker.SamplingParams(max_tokens=limit, seed=seed, stop=list(ends), **given)


def _sample(sequence: Any) -> _Sample:
    ids, logprobs = sequence.tokens, sequence.logprobs
    if logprobs is not None and len(logprobs) != len(ids):
        raise BackendError(f"the server gave {len(ids)} tokens and {len(logprobs)} log-probabilities")
    reason = str(sequence.stop_reason) if sequence.stop_reason in ("stop", "length") else None
    return _Sample(tuple(ids), None if logprobs is None else tuple(logprobs), reason)


def _cut(sample: _Sample, stop: StopText) -> _Sample:
    """The sample up to the token in which the first stop text ends."""
    for end in range(1, len(sample.ids)):
        if stop.found(sample.ids[:end]):
            logprobs = None if sample.logprobs is None else sample.logprobs[:end]
            return _Sample(sample.ids[:end], logprobs, "stop")
    return _Sample(sample.ids, sample.logprobs, "stop") if stop.found(sample.ids) else sample
