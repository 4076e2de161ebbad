"""Log-probabilities of given tokens. There is no common way, so each known one is tried and the first kept.

    prompt_logprobs   vLLM: /v1/completions with prompt_logprobs
    echo              OpenAI's old completions: echo with logprobs (vLLM, some others)
    native            SGLang: its own /generate with logprob_start_len, which the prefix cache serves

Each value is checked: it must belong to the token asked about and be finite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from atropos_cli.builtin.openai.answer import LEAST_LOGPROB, read_json
from atropos_cli.builtin.openai.request import encode
from atropos_cli.builtin.openai.servers import Server, ServerPool
from atropos_cli.sdk.backends import (
    ContextOverflow,
    FatalBackendError,
    RequestRejected,
    TransientBackendError,
    ids_fault,
    logprobs_fault,
)

_WAYS = {
    "vllm": ("prompt_logprobs", "echo"),
    "sglang": ("native",),
}
_ALL_WAYS = ("prompt_logprobs", "echo", "native")


class _NotOffered(Exception):
    """This way of scoring does not exist on this server."""


class TokenScorer:
    """score() of the backend. `way` is the one that works, once known."""

    def __init__(self, pool: ServerPool, model: str, timeout: float) -> None:
        self._pool = pool
        self._model = model
        self._timeout = timeout
        self._finding = asyncio.Lock()
        self.way: str | None = None
        self.requests = 0

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> list[float]:
        """One value per continuation token. Raises BackendError."""
        if not prefix_ids:
            raise RequestRejected("the first token of a text has no log-probability: scoring needs a prefix")
        if not continuation_ids:
            return []
        prefix, continuation = list(prefix_ids), list(continuation_ids)
        if self.way is None:
            async with self._finding:
                if self.way is None:
                    return await self._find(prefix, continuation)
        try:
            return await self._score(self.way, prefix, continuation)
        except _NotOffered as error:
            raise FatalBackendError(f"the server no longer gives log-probabilities of prompts: {error}") from error

    async def tokenize(self, text: str) -> list[int]:
        """The server's own ids of a text. Raises BackendError."""
        body = encode({"model": self._model, "prompt": text, "add_special_tokens": False})

        async def send(server: Server) -> list[int]:
            response = await server.post_root("/tokenize", body, self._timeout)
            if response.status in (404, 405, 501):
                raise FatalBackendError(
                    f"{server.address} does not tokenize texts (no /tokenize)",
                    hint="serve the model with vLLM or SGLang, or use a local backend",
                )
            if response.status != 200:
                raise server.error(response, server.asked(self._model, "/tokenize", endpoint="completions"))
            try:
                tokens: list[int] = read_json(response.body)["tokens"]
            except (ValueError, KeyError, TypeError) as error:
                raise TransientBackendError(f"{server.address} sent no token ids for a text") from error
            if not isinstance(tokens, list) or (fault := ids_fault(tokens)) is not None:
                fault = "no list" if not isinstance(tokens, list) else fault
                raise TransientBackendError(f"{server.address} sent something other than token ids for a text: {fault}")
            return tokens

        return await self._pool.call(send)

    async def _find(self, prefix: list[int], continuation: list[int]) -> list[float]:
        kind = self._pool.servers[0].kind
        reasons = []
        for way in _WAYS.get(kind, _ALL_WAYS):
            try:
                values = await self._score(way, prefix, continuation)
            except _NotOffered as error:
                reasons.append(f"{way}: {error}")
                continue
            self.way = way
            return values
        raise FatalBackendError(
            "this server gives no log-probabilities of given tokens (" + "; ".join(reasons) + ")",
            hint="serve the model with vLLM or SGLang, or use a local backend; other servers rarely offer it",
        )

    async def _score(self, way: str, prefix: list[int], continuation: list[int]) -> list[float]:
        async def send(server: Server) -> list[float]:
            return await self._ask(server, way, prefix, continuation)

        return await self._pool.call(send)

    async def _ask(self, server: Server, way: str, prefix: list[int], continuation: list[int]) -> list[float]:
        path = "/generate" if way == "native" else "/completions"
        body = encode(_body(way, self._model, prefix, continuation))
        post = server.post_root if way == "native" else server.post
        self.requests += 1
        response = await post(path, body, self._timeout)
        if response.status != 200:
            error = server.error(response, server.asked(self._model, path, endpoint="completions"))
            refused = response.status in (400, 403, 404, 405, 422, 501) and not isinstance(error, ContextOverflow)
            if refused and self.way is None:
                raise _NotOffered(error.message)
            raise error
        try:
            data = read_json(response.body)
        except ValueError as error:
            raise TransientBackendError(f"{server.address} sent scores that are not JSON") from error
        try:
            values, ids = _READERS[way](data, len(prefix), continuation)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise _NotOffered(f"no such values in the answer ({type(error).__name__}: {error})") from error
        return _checked(values, ids, continuation, server.address)


def _body(way: str, model: str, prefix: list[int], continuation: list[int]) -> dict[str, Any]:
    ids = prefix + continuation
    if way == "native":
        return {
            "input_ids": ids,
            # Nothing is wanted, but some releases ask for one token at least.
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": len(prefix) - 1,
        }
    body: dict[str, Any] = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0}
    if way == "prompt_logprobs":
        body["prompt_logprobs"] = 0
    else:
        body |= {"echo": True, "logprobs": 1}
    return body


Read = tuple[list[Any], list[int] | None]


def _read_prompt_logprobs(data: Any, start: int, continuation: list[int]) -> Read:
    entries = data["choices"][0]["prompt_logprobs"][start : start + len(continuation)]
    return [entry[str(token)]["logprob"] for entry, token in zip(entries, continuation, strict=True)], None


def _read_echo(data: Any, start: int, continuation: list[int]) -> Read:
    values = data["choices"][0]["logprobs"]["token_logprobs"]
    # The prompt, and behind it at most the one token that was sampled; fewer values: the prompt was not echoed.
    if not start + len(continuation) <= len(values) <= start + len(continuation) + 1:
        raise ValueError(f"{len(values)} values for {start + len(continuation)} prompt tokens")
    return values[start : start + len(continuation)], None


def _read_native(data: Any, start: int, continuation: list[int]) -> Read:
    # From the last prefix token on; the value of that first one is null.
    entries = data["meta_info"]["input_token_logprobs"][1:]
    if len(entries) != len(continuation):
        raise ValueError(f"{len(entries)} values for {len(continuation)} tokens")
    return [entry[0] for entry in entries], [entry[1] for entry in entries]


_READERS = {"prompt_logprobs": _read_prompt_logprobs, "echo": _read_echo, "native": _read_native}


def _checked(values: list[Any], ids: list[int] | None, continuation: list[int], address: str) -> list[float]:
    """The values as floats. Raises BackendError when they cannot be what was asked for."""
    if ids is not None and (ids_fault(ids) is not None or ids != continuation):
        raise FatalBackendError(f"{address} scored other tokens than those asked about")
    for position, value in enumerate(values):
        if logprobs_fault([value]) is not None or value < LEAST_LOGPROB:
            raise RequestRejected(
                f"{address} gives no finite log-probability for token {continuation[position]} at position {position}"
            )
    return [float(value) for value in values]
