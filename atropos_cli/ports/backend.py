"""Inference backends: whatever turns messages into completions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.domain.plan import Sampling
from atropos_cli.domain.prices import Price, TokenUsage
from atropos_cli.domain.tokendata import TokenIds
from atropos_cli.errors import BackendError


class NoOptions(BaseModel):
    """The Config of a component without options."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Capabilities(Frozen):
    """What a backend can give. None means not known before the first answer."""

    logprobs: bool | None = None
    prompt_logprobs: bool | None = None
    token_ids: bool | None = None
    tools: bool | None = None
    n: bool | None = None
    weight_sync: bool = False
    prefill: bool = False
    choices: bool = False


class GenerateRequest(Frozen):
    """n samples of the continuation of `messages` (or of `prompt_ids`, where a caller has exact tokens)."""

    messages: tuple[Message, ...] = ()
    prompt_ids: TokenIds | None = None
    n: int = 1
    sampling: Sampling = Field(default_factory=Sampling)
    seed: int | None = None
    tools: tuple[JsonDict, ...] | None = None
    logprobs: Literal["auto", "require", "off"] = "auto"
    prefill: str = ""
    """The reply begins with this text: sample what follows it, and return that alone. See Capabilities.prefill."""
    choices: tuple[str, ...] = ()
    """Where there are any, the reply is exactly one of these texts. See Capabilities.choices.

    The log-probabilities stay those of the model without this constraint: they are what a trainer computes again.
    """


class Completion(Frozen):
    """One sampled reply. `message.tokens` holds the sampled ids and logprobs when the backend gave them."""

    message: Message
    finish_reason: str | None
    completion_tokens: int | None = None


class Generation(Frozen):
    """The answer to one request. May hold fewer than n completions (a server that ignores n).

    prompt_ids: the ids of the whole prompt as the model saw it, None when the backend did not say.
    usage: what the request is billed for, all samples together; None: what the other fields say.
    weights_version: that of update_weights() which was in force; None: the backend does not know, or there was none.
    """

    completions: tuple[Completion, ...]
    prompt_ids: TokenIds | None = None
    prompt_tokens: int | None = None
    usage: TokenUsage | None = None
    weights_version: int | None = None


class InferenceBackend(ABC):
    """Turns requests into completions. One object serves a whole run, from one event loop.

    generate() makes one attempt and never retries; it tells apart what the engine should do by the
    exception: TransientBackendError (retry; RateLimited and ServerUnavailable make all workers
    wait), RequestRejected (this request only; ContextOverflow ends the episode truncated),
    FatalBackendError (stop the run).
    """

    name: ClassVar[str]
    Config: ClassVar[type[BaseModel]] = NoOptions
    weights_version: int | None = None
    """Set by the engine where a trainer in another process changes the weights: sampled tokens are marked with it."""

    def __init__(self, config: Any, *, model: str | None = None) -> None:
        self.config = config
        self.model = model
        self.capabilities = Capabilities()

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Connect or load. Afterwards `self.model` is the served model's name. Raises BackendError."""

    async def close(self) -> None:
        """Free everything. Called once."""

    @abstractmethod
    async def generate(self, request: GenerateRequest) -> Generation:
        """One attempt at the request; see the class for the exceptions."""

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probability of each continuation token given all before it; len(continuation_ids) values.

        Raises BackendError where the backend cannot score (capabilities.prompt_logprobs is False).
        """
        raise BackendError(f"backend {self.name!r} cannot score given tokens")

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text by the model's own tokenizer, special tokens neither added nor refused.

        Costs no generation. Raises BackendError where the backend cannot tell.
        """
        raise BackendError(f"backend {self.name!r} has no tokenizer to ask")

    def adopt(self, model: Any, tokenizer: Any) -> None:
        """Before open(): sample from this torch module of the same process instead of loading `self.model`.

        Raises BackendError where the backend runs elsewhere.
        """
        raise BackendError(f"backend {self.name!r} cannot sample from a model of this process")

    async def update_weights(self, source: str | None, *, version: int, loaded: bool = False) -> None:
        """Sample from other weights from now on; waits until they are in force.

        source: a folder that transformers can load (or a LoRA adapter's), readable by the server; None for
        an adopted model whose weights have changed in place: what was computed from old ones is dropped.
        loaded: another process has given them to the server already, and only needs following.
        Raises BackendError where capabilities.weight_sync is False.
        """
        raise BackendError(f"backend {self.name!r} cannot change its weights while it runs")

    async def refresh(self, change: Callable[[], None], *, version: int) -> None:
        """Call `change`, which writes new weights into the adopted model, at a time when nothing computes with it.

        Requests may be under way: they continue with the new weights, and nothing that the old ones computed is used
        for their next tokens. Raises BackendError where the backend holds no adopted model, or cannot do it.
        """
        raise BackendError(f"backend {self.name!r} cannot take weights of this process while it samples")

    def price(self) -> Price | None:
        """What the model costs, where the backend itself knows; in US dollars. A file of prices comes before it."""
        return None

    async def identity(self) -> JsonDict | None:
        """What decides its replies beside the request: the model and its weights. No secrets; after open().

        Replies are cached under it. None: the engine goes by the backend's options and the model's name, and where
        that is a file or folder, by its size and time.
        """
        return None

    async def probe(self) -> bool:
        """Is the backend ready for work? Must be cheap: never a generation. Must not raise."""
        return True

    def describe(self) -> JsonDict:
        """What to record in the run: endpoints, capabilities, how completions were made. No secrets."""
        return {"name": self.name, "capabilities": self.capabilities.model_dump(exclude_none=True)}
