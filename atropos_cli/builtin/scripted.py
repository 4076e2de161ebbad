"""A backend without a model: replies from a list or from a function. For tests, docs and dry rehearsals.

    [backend_options]                       # one of the two
    replies = ["north", "take the key"]     # given out in turn
    function = "./player.py:reply"          # def reply(messages, request) -> str

With `token_ids` each reply also carries token ids and logprobs by the rule of `text/bytetokens.py`, so that everything
behind them can be rehearsed.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from atropos_cli.sdk import AtroposError, Config, ConfigError, Field, JsonDict, Message, TokenSpan
from atropos_cli.sdk.backends import (
    Capabilities,
    Completion,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    RequestRejected,
    encode_prompt,
    encode_reply,
    token_logprobs,
)

Function = Callable[[Sequence[Message], GenerateRequest], Any]


class ScriptedConfig(Config):
    replies: tuple[str, ...] = Field(default=(), description="Replies to give out, as `mode` says.")
    mode: Literal["cycle", "once", "random"] = Field(
        default="cycle",
        description="cycle: in turn, from the start again; once: in turn, then refuse; random: by the request's seed.",
    )
    function: str | None = Field(
        default=None, description="A function (messages, request) -> str, as module:attr or ./file.py:attr."
    )
    token_ids: bool = Field(
        default=False, description="Give each reply token ids (its UTF-8 bytes) and made-up logprobs."
    )
    delay_s: float = Field(default=0.0, ge=0, description="Seconds each request takes.")

    @model_validator(mode="after")
    def _one_source(self) -> ScriptedConfig:
        if self.replies and self.function is not None:
            raise ValueError("give replies or function, not both")
        return self


def load_function(target: str) -> Function:
    """Import `module:attr` or `./file.py:attr`. Raises ConfigError."""
    place, _, attr = target.rpartition(":")
    if not place or not attr:
        raise ConfigError(
            f"function {target!r} is not of the form module:attr or ./file.py:attr", hint="./player.py:reply"
        )
    try:
        if place.endswith(".py"):
            path = Path(place).expanduser()
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise ConfigError(f"function {target!r}: there is no file {place!r}")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        function = getattr(module, attr)
    except AtroposError:
        raise
    except Exception as error:
        raise ConfigError(f"function {target!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise ConfigError(f"function {target!r} is {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


class ScriptedBackend(InferenceBackend):
    """Replies from `replies` or `function`. Sampling parameters are ignored: a reply is given whole."""

    name: ClassVar[str] = "scripted"
    Config: ClassVar[type[ScriptedConfig]] = ScriptedConfig

    def __init__(self, config: ScriptedConfig | None = None, *, model: str | None = None) -> None:
        super().__init__(config or ScriptedConfig(), model=model or "scripted")
        tokens = self.config.token_ids
        self.capabilities = Capabilities(
            logprobs=tokens, token_ids=tokens, prompt_logprobs=tokens, tools=True, n=True, prefill=True, choices=True
        )
        self._function: Function | None = None
        self._next = 0
        self._requests = 0
        self._in_flight = 0
        self._max_in_flight = 0

    @classmethod
    def from_function(
        cls, function: Function, *, config: ScriptedConfig | None = None, model: str | None = None
    ) -> ScriptedBackend:
        """A backend around a Python function, for tests. See `generate` for what it may return."""
        backend = cls(config, model=model)
        backend._function = function
        return backend

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Load the function. Raises ConfigError when there is nothing to reply with."""
        if self._function is None and self.config.function is not None:
            self._function = load_function(self.config.function)
        if self._function is None and not self.config.replies:
            raise ConfigError(
                "the scripted backend has nothing to say",
                hint="--backend.replies TEXT, or --backend.function ./player.py:reply",
            )

    async def generate(self, request: GenerateRequest) -> Generation:
        """n replies.

        A function is called once per reply and returns str, Message or Completion, or is called once
        and returns a list of them for the whole request; it may be async. An AtroposError it raises
        is the request's outcome; any other exception stops the run, as a script with a bug should.
        """
        if request.logprobs == "require" and not self.config.token_ids:
            raise FatalBackendError(
                "logprobs are required, but the scripted backend gives none",
                hint="--backend.token-ids for made-up ones, or do not require logprobs",
            )
        self._requests += 1
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        try:
            if self.config.delay_s:
                await asyncio.sleep(self.config.delay_s)
            replies = await self._replies(request)
        finally:
            self._in_flight -= 1
        with_tokens = self.config.token_ids and request.logprobs != "off"
        if request.choices:
            replies = [_picked(reply, request.choices) for reply in replies]
        completions = tuple(_completion(reply, with_tokens) for reply in replies[: request.n])
        prompt_ids = request.prompt_ids
        if prompt_ids is None and with_tokens:
            prompt_ids = encode_prompt([(message.role, message.text) for message in request.messages])
        return Generation(
            completions=completions,
            prompt_ids=prompt_ids,
            prompt_tokens=len(prompt_ids) if prompt_ids is not None else None,
        )

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """The same made-up logprobs that the ids would have had as a reply."""
        if not self.config.token_ids:
            raise FatalBackendError(
                "the scripted backend scores tokens only with token_ids", hint="--backend.token-ids"
            )
        return token_logprobs(continuation_ids)

    async def tokenize(self, text: str) -> Sequence[int]:
        """The bytes of the text, by the same rule as a reply's, without END."""
        return tuple(text.encode("utf-8"))

    def describe(self) -> JsonDict:
        """Where the replies came from and how many requests there were."""
        source: JsonDict = {"mode": self.config.mode, "replies": len(self.config.replies)}
        if self._function is not None:
            source = {"function": self.config.function or getattr(self._function, "__qualname__", "function")}
        counts: JsonDict = {"n_requests": self._requests, "max_in_flight": self._max_in_flight}
        return {**super().describe(), "model": self.model, **source, "counts": counts}

    async def _replies(self, request: GenerateRequest) -> list[Any]:
        if self._function is None:
            return self._from_list(request)
        first = await self._call(request)
        if isinstance(first, list | tuple):
            return list(first)
        return [first, *[await self._call(request) for _ in range(request.n - 1)]]

    async def _call(self, request: GenerateRequest) -> Any:
        assert self._function is not None
        try:
            result = self._function(request.messages, request)
            return await result if inspect.isawaitable(result) else result
        except AtroposError:
            raise
        except Exception as error:
            raise FatalBackendError(
                f"the scripted function failed: {type(error).__name__}: {error}", hint=self.config.function
            ) from error

    def _from_list(self, request: GenerateRequest) -> list[str]:
        replies: tuple[str, ...] = self.config.replies
        if self.config.mode == "random":
            # By seed and prompt, not by order of arrival: the same run gives the same replies with any --workers.
            text = "\x00".join(f"{message.role}\x00{message.text}" for message in request.messages)
            digest = hashlib.sha256(f"{request.seed}\x00{text}".encode("utf-8", "surrogatepass")).digest()
            return random.Random(digest).choices(replies, k=request.n)
        if self.config.mode == "once" and self._next + request.n > len(replies):
            raise RequestRejected(
                f"the script has {len(replies)} replies and {self._next} were given; {request.n} more were asked for",
                hint="add replies, or --backend.mode cycle",
            )
        start = self._next
        self._next += request.n
        return [replies[(start + index) % len(replies)] for index in range(request.n)]


def _picked(reply: Any, choices: Sequence[str]) -> Any:
    """The reply, if it is one of the choices. Raises RequestRejected for any other."""
    text = reply if isinstance(reply, str) else getattr(getattr(reply, "message", reply), "text", "")
    if text not in choices:
        raise RequestRejected(
            f"the script says {text!r:.80}, and only one of {len(choices)} given replies may be said",
            hint=f"among them: {', '.join(map(repr, choices[:5]))}",
        )
    return reply


def _completion(reply: Any, with_tokens: bool) -> Completion:
    """A reply of any allowed form as a Completion. Raises FatalBackendError for any other."""
    if isinstance(reply, Completion):
        return reply
    if isinstance(reply, str):
        reply = Message(role="assistant", content=reply)
    if not isinstance(reply, Message) or reply.role != "assistant":
        kind = f"a message of role {reply.role!r}" if isinstance(reply, Message) else type(reply).__name__
        raise FatalBackendError(
            f"the scripted function returned {kind}", hint="return str, an assistant Message, or a list of them"
        )
    finish_reason = reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")
    tokens = reply.tokens
    if tokens is None and with_tokens:
        ids = encode_reply(reply.text)
        tokens = TokenSpan(ids=ids, mask=True, logprobs=token_logprobs(ids))
    message = reply.replace(finish_reason=finish_reason, tokens=tokens)
    return Completion(
        message=message, finish_reason=finish_reason, completion_tokens=len(tokens.ids) if tokens is not None else None
    )
