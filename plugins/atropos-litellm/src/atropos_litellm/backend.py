"""The backend `litellm`: one request, one call of litellm, which speaks the provider's own API.

Retries, pauses and limits are the engine's, so litellm's own are off. What a provider does not take is left out, and
said once. No provider gives token ids, so rollouts are recorded without ids and log-probabilities.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import field_validator

from atropos_cli.sdk import Config, ConfigError, Field, JsonDict
from atropos_cli.sdk.backends import (
    Capabilities,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    Price,
)
from atropos_cli.sdk.secrets import learn_secret, learn_url_secret, names_a_secret
from atropos_litellm.answers import read_answer
from atropos_litellm.errors import classify
from atropos_litellm.library import litellm
from atropos_litellm.messages import message_json

log = logging.getLogger("atropos.backend")
_OWN = frozenset({"model", "messages", "n", "stream", "api_key", "tools", "num_retries", "max_retries", "timeout"})
_TOP_K = frozenset({"anthropic", "gemini", "vertex_ai", "bedrock", "cohere", "cohere_chat", "ollama", "hosted_vllm"})
_MILLION = 1_000_000


class LitellmConfig(Config):
    base_url: str | None = Field(default=None, description="Address of the provider; default: litellm's own for it.")
    api_key_env: str | None = Field(
        default=None, description="Environment variable that holds the API key; default: the provider's usual ones."
    )
    extra: JsonDict = Field(
        default_factory=dict, description="More arguments of litellm.acompletion, such as reasoning_effort."
    )

    @field_validator("base_url")
    @classmethod
    def _no_credentials(cls, value: str | None) -> str | None:
        if value is not None and "@" in value.partition("//")[2].partition("/")[0]:
            learn_url_secret(value)
            raise ValueError("a user name or password has no place in a URL: use api_key_env")
        return value

    @field_validator("extra")
    @classmethod
    def _no_secrets(cls, value: JsonDict) -> JsonDict:
        for name in value:
            if name in _OWN:
                raise ValueError(f"{name!r} is set by atropos itself")
            if names_a_secret(name):
                raise ValueError(f"{name!r} holds a secret: put it in the environment variable that litellm reads")
        return value


class LitellmBackend(InferenceBackend):
    """Requests to a provider that litellm knows. `model` is PROVIDER/NAME, as litellm writes it."""

    name: ClassVar[str] = "litellm"
    Config: ClassVar[type[LitellmConfig]] = LitellmConfig

    def __init__(self, config: LitellmConfig, *, model: str | None = None) -> None:
        super().__init__(config, model=model)
        self.capabilities = Capabilities(logprobs=False, prompt_logprobs=False, token_ids=False)
        self._library: Any = None
        self._key: str | None = None
        self._provider = ""
        self._known: frozenset[str] = frozenset()
        self._timeout = 600.0
        self._dropped: dict[str, int] = {}

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Load litellm and look the model up; asks no server. Raises ConfigError and FatalBackendError."""
        if self.model is None:
            raise FatalBackendError(
                "the backend litellm needs a model", hint="--model PROVIDER/NAME, such as anthropic/claude-sonnet-4-5"
            )
        self._timeout = request_timeout
        self._library = library = await asyncio.to_thread(litellm)
        try:
            _, self._provider, _, _ = library.get_llm_provider(self.model, api_base=self.config.base_url)
        except library.exceptions.BadRequestError as error:
            raise FatalBackendError(
                f"litellm knows no provider of the model {self.model!r}",
                hint="write PROVIDER/NAME, such as anthropic/claude-sonnet-4-5, gemini/gemini-2.5-flash, bedrock/...",
            ) from error
        self._key = self._read_key(library)
        known = library.get_supported_openai_params(self.model, custom_llm_provider=self._provider)
        self._known = frozenset(known or ())
        changes = {"n": None if "n" in self._known else False, "tools": True if "tools" in self._known else None}
        self.capabilities = self.capabilities.replace(**changes)

    async def close(self) -> None:
        """Close the connections."""
        close = getattr(self._library, "close_litellm_async_clients", None)
        if close is not None:
            await close()

    async def generate(self, request: GenerateRequest) -> Generation:
        """One attempt; see InferenceBackend."""
        assert self._library is not None, "generate() before open()"
        if request.logprobs == "require":
            raise FatalBackendError(
                "log-probabilities are required, and providers behind litellm give no token ids",
                hint="leave out --logprobs require, or use a server of your own by --base-url",
            )
        if not request.messages:
            raise FatalBackendError("litellm takes messages, not token ids")
        if self.capabilities.n is False and request.n > 1:
            request = request.replace(n=1)
        try:
            answer = await self._library.acompletion(**self._arguments(request))
        except Exception as error:  # whatever litellm raises, and it has many kinds
            raise classify(error, self._library, self.model or "", self._provider) from error
        generation = read_answer(answer, self._library, n=request.n)
        if request.n > 1:
            several = len(generation.completions) == request.n
            self.capabilities = self.capabilities.replace(n=several)
        return generation

    def price(self) -> Price | None:
        """litellm's own table, as it came with the package."""
        try:
            info: Mapping[str, Any] = self._library.get_model_info(self.model, custom_llm_provider=self._provider)
        except Exception:  # noqa: BLE001 - it raises bare Exception for a model that it has no price of
            return None

        def per_million(name: str) -> float | None:
            value = info.get(name)
            return value * _MILLION if isinstance(value, int | float) and value >= 0 else None

        into, out = per_million("input_cost_per_token"), per_million("output_cost_per_token")
        if into is None or out is None or (into == 0 and out == 0):
            return None
        return Price(
            input=into,
            output=out,
            cached_input=per_million("cache_read_input_token_cost"),
            reasoning=per_million("output_cost_per_reasoning_token"),
        )

    async def identity(self) -> JsonDict:
        """The provider's address: litellm takes it from the environment too."""
        ends = ("_API_BASE", "_BASE_URL", "_ENDPOINT", "_REGION", "_REGION_NAME")
        found = {name: value for name, value in sorted(os.environ.items()) if value and name.endswith(ends)}
        address = {"base_url": self.config.base_url, "variables": found}
        return {"address": address, "known_by": "the model's name and the provider's address"}

    def describe(self) -> JsonDict:
        """Provider, and what it was not asked for because it takes no such thing."""
        told: JsonDict = {"model": self.model, "provider": self._provider, "dropped_fields": {**self._dropped}}
        return {**super().describe(), **told}

    def _read_key(self, library: Any) -> str | None:
        name = self.config.api_key_env
        if name is not None:
            key = os.environ.get(name, "").strip()
            if not key:
                raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=...")
            learn_secret(key)
            return key
        found = library.validate_environment(self.model, api_base=self.config.base_url)
        missing = found.get("missing_keys") or []
        for variable in set(os.environ):
            if names_a_secret(variable) and os.environ[variable]:
                learn_secret(os.environ[variable])
        if missing and not found.get("keys_in_environment") and self.config.base_url is None:
            names = " and ".join(missing)
            raise ConfigError(
                f"the provider {self._provider!r} needs {names} in the environment",
                hint=f"export {missing[0]}=..., or name another variable by --api-key-env",
            )
        # The clients below litellm refuse to start without any key, also where a server of one's own needs none.
        return "none" if missing and not found.get("keys_in_environment") else None

    def _arguments(self, request: GenerateRequest) -> dict[str, Any]:
        sampling = request.sampling
        wanted: dict[str, Any] = {
            "n": request.n if request.n > 1 else None,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stop": list(sampling.stop) or None,
            "seed": request.seed,
            "tools": list(request.tools) if request.tools else None,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        taken = self._known | ({"top_k"} if self._provider in _TOP_K else set())
        for name in [name for name in given if name not in taken]:
            del given[name]
            self._drop(name)
        return {
            **given,
            "model": self.model,
            "messages": [message_json(message) for message in request.messages],
            "api_base": self.config.base_url,
            "api_key": self._key,
            "timeout": self._timeout,
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": True,
            **self.config.extra,
        }

    def _drop(self, name: str) -> None:
        if name not in self._dropped:
            effect = {"seed": "replies cannot be repeated", "tools": "no tools are offered"}.get(
                name, "it has no effect"
            )
            log.warning("%s does not take %s: %s", self.model, name, effect)
        self._dropped[name] = self._dropped.get(name, 0) + 1
