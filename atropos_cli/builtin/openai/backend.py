"""The OpenAI-compatible backend: SGLang, vLLM, llama.cpp and everything else that speaks /v1.

How one request goes:

    build the body (openai_request, openai_prompt) -> pick a server (openai_servers) -> one HTTP request
    (openai_http) -> an error by status and wording (openai_errors) or a Generation (openai_answer)

Token ids and logprobs are asked for with every request unless the user says otherwise; a server that refuses the
field is asked without it from then on. Whatever a server cannot do is learnt from its answers, kept in
`capabilities`, logged once and recorded by `describe()`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from atropos_cli.builtin.openai.answer import NoAnswer, Notes, read_answer
from atropos_cli.builtin.openai.choices import ChoiceAsker, other_reply, without_logprobs
from atropos_cli.builtin.openai.config import OpenAIConfig, api_key, public_url, request_headers
from atropos_cli.builtin.openai.errors import Asked, ErrorWords, classify, code_inside, read_error
from atropos_cli.builtin.openai.plain import VARIABLE, fill_body
from atropos_cli.builtin.openai.prompt import Render, make_render, stop_texts
from atropos_cli.builtin.openai.request import (
    PREFILL_FIELDS,
    RequestFields,
    build_body,
    encode,
    message_json,
    prompt_content,
    refused_setting,
)
from atropos_cli.builtin.openai.score import TokenScorer
from atropos_cli.builtin.openai.servers import Server, ServerPool
from atropos_cli.builtin.openai.weights import WeightUpdater
from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.backends import (
    BackendError,
    Capabilities,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    RequestRejected,
    TransientBackendError,
)

log = logging.getLogger("atropos.backend")

# Requests wait this long for the very first one to tell which optional fields the server takes. A refusal
# comes at once; a server that is still generating after this time has accepted the fields.
_HEAD_START = 2.0

__all__ = ["OpenAIBackend", "OpenAIConfig"]


class OpenAIBackend(InferenceBackend):
    """Requests to one or several OpenAI-compatible servers of one model."""

    name: ClassVar[str] = "openai"
    Config: ClassVar[type[OpenAIConfig]] = OpenAIConfig

    def __init__(self, config: OpenAIConfig, *, model: str | None = None) -> None:
        super().__init__(config, model=model)
        self.capabilities = self.capabilities.model_copy(update={"prefill": True, "choices": True})
        self._fields = RequestFields()
        self._counts: Counter[str] = Counter()
        self._told: set[str] = set()
        self._first: asyncio.Event | None = None
        self._refused: FatalBackendError | None = None
        self._timeout = 600.0
        self._extra: JsonDict = {}
        self._pool: ServerPool | None = None
        self._render: Render | None = None
        self._scorer: TokenScorer | None = None
        self._weights: WeightUpdater | None = None
        self._choices: ChoiceAsker | None = None
        self._path = "/chat/completions" if config.endpoint == "chat" else "/completions"

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Read key and template, ask the servers for their models.

        Raises ConfigError, ServerUnavailable (no server listens yet), FatalBackendError (key, model).
        """
        config = self.config
        self._timeout = request_timeout
        self._extra = fill_body(config.extra_body)
        if config.endpoint == "completions" and self._render is None:
            self._render = await asyncio.to_thread(make_render, config.chat_template, config.tokenizer)
        if self._pool is not None:
            await self._pool.close()
        self._pool = ServerPool([self._server(url) for url in config.base_url])
        self.model = await self._pool.open(self.model)
        self._scorer = TokenScorer(self._pool, self.model, request_timeout)
        first = self._pool.servers[0]
        self._choices = ChoiceAsker(config.choices_field, first.kind, first.version)
        if first.kind in ("vllm", "sglang"):
            self._fields.logprobs_value = 0  # the sampled token alone; 0 means none at all to some others
            self._learn(weight_sync=True)
        self._weights = WeightUpdater(self._pool.servers, self.model, request_timeout)

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            await self._pool.close()

    async def generate(self, request: GenerateRequest) -> Generation:
        """One attempt; see the module for what is tried within it, and openai_errors for what it raises."""
        assert self._pool is not None, "generate() before open()"
        if self.capabilities.n is False and request.n > 1:
            request = request.replace(n=1)
        if request.choices and request.logprobs == "require":
            raise FatalBackendError(
                "logprobs are required, but a server does not say which distribution those of a held reply are of",
                hint="leave out --logprobs require, or play with the model in process: --backend local",
            )
        content = self._content(request)
        if self._first is None and request.logprobs != "off":
            # The first request goes ahead, to learn which optional fields are taken, while others wait a little.
            self._first = first = asyncio.Event()
            timer = asyncio.get_running_loop().call_later(_HEAD_START, first.set)
            try:
                return await self._pool.call(lambda server: self._attempt(server, request, content))
            except FatalBackendError as error:
                self._refused = error  # for those who wait: none of them will fare better
                raise
            finally:
                timer.cancel()
                first.set()
        if self._first is not None and not self._first.is_set():
            await self._first.wait()
            if self._refused is not None:
                raise self._refused
            if self.capabilities.n is False and request.n > 1:
                request = request.replace(n=1)
        return await self._pool.call(lambda server: self._attempt(server, request, content))

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """See the port, and openai_score for the ways it is done."""
        assert self._scorer is not None, "score() before open()"
        try:
            values = await self._scorer.score(prefix_ids, continuation_ids)
        except FatalBackendError:
            self._learn(prompt_logprobs=False)
            raise
        if self.capabilities.prompt_logprobs is None:
            self._learn(prompt_logprobs=True)
        return values

    async def tokenize(self, text: str) -> Sequence[int]:
        """Ask the server (vLLM and SGLang offer /tokenize). Raises FatalBackendError where it has no such path."""
        assert self._scorer is not None, "tokenize() before open()"
        return await self._scorer.tokenize(text)

    async def update_weights(self, source: str | None, *, version: int, loaded: bool = False) -> None:
        """See the port, and openai_weights for the ways it is done."""
        assert self._weights is not None, "update_weights() before open()"
        if source is None:
            raise FatalBackendError("a server takes new weights from a folder, not from this process")
        await self._weights.update(source, version, loaded=loaded)
        self.model = self._weights.model
        self._counts["weights_version"] = version

    async def probe(self) -> bool:
        """Does any server answer, ready for work?"""
        if self._pool is None:
            return False
        return await self._pool.probe()

    async def identity(self) -> JsonDict | None:
        """The weights' version, where every server names one; see InferenceBackend."""
        weights: list[JsonDict] = []
        for server in self._pool.servers if self._pool is not None else ():
            version = await server.weights() if server.kind == "sglang" else None
            if version is None:
                return None
            weights.append(version)
        told = [version for place, version in enumerate(weights) if version not in weights[:place]]
        return {"weights": list(told), "known_by": "the weights' version"} if told else None

    def describe(self) -> JsonDict:
        """Servers, what they can do, which fields were asked for, and what was missing how often."""
        counts: Counter[str] = Counter(self._counts)
        servers: list[Any] = [{"url": public_url(url)} for url in self.config.base_url]
        if self._pool is not None:
            servers = [server.describe() for server in self._pool.servers]
            counts["failovers"] = self._pool.failovers
            counts["stale_connections"] = sum(self._pool.stale_retries())
        if self._scorer is not None:
            counts["score_requests"] = self._scorer.requests
        asked = ("return_token_ids", "logprobs") if self._first is not None else ()
        fields = [name for name in asked if name not in self._fields.dropped]
        return {
            **super().describe(),
            "model": self.model,
            "endpoint": self.config.endpoint,
            "servers": servers,
            "request_fields": [*fields, self._fields.max_tokens],
            "dropped_fields": dict(self._fields.dropped),
            "prompt_scoring": self._scorer.way if self._scorer is not None else None,
            "counts": {name: count for name, count in counts.items() if count},
        }

    def _server(self, url: str) -> Server:
        key, key_env = api_key(self.config, url)
        secrets = bool(key) or any(VARIABLE.search(text) for text in self.config.headers.values())
        return Server(url, request_headers(self.config, key), key_env, secrets=secrets)

    def _content(self, request: GenerateRequest) -> dict[str, Any]:
        """The part of the body that holds the conversation. Encoded once, however often it is sent."""
        if self.config.endpoint == "completions" and request.prompt_ids is not None:
            return prompt_content(request.prompt_ids)
        messages = [message_json(m, send_reasoning=self.config.send_reasoning) for m in request.messages]
        if self._render is not None:
            messages = [{**message, "content": message["content"] or ""} for message in messages]
            prompt = self._render(messages, request.tools, request.prefill)
            return prompt_content(prompt, stop_texts(self.config.chat_template))
        if not messages:
            raise RequestRejected(
                "the chat endpoint needs messages, not token ids", hint="use --endpoint completions to send token ids"
            )
        if request.prefill:
            # As vLLM and SGLang have it. A server that does not know these fields refuses them.
            messages.append({"role": "assistant", "content": request.prefill})
            return {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
        return {"messages": messages}

    async def _attempt(self, server: Server, request: GenerateRequest, content: dict[str, Any]) -> Generation:
        """Send the request to one server; without the optional fields that it refuses."""
        assert self.model is not None
        asked = server.asked(self.model, self._path, endpoint=self.config.endpoint, with_tools=bool(request.tools))
        while True:
            assert self._choices is not None
            picked = self._choices.fields(request.choices) if request.choices else {}
            way = next(iter(picked), "")
            body = build_body(request, self.model, self._fields, {**content, **picked}, extra=self._extra)
            data = encode(body)
            self._counts["n_requests"] += 1
            response = await server.post(self._path, data, self._timeout)
            if response.status == 200:
                generation = self._read(server, response.body, request, body, asked)
                if not request.choices:
                    return generation
                if (other := other_reply(generation, request.choices)) is None:
                    return without_logprobs(generation)
                self._choices.failed(way, f"asked by the field {way!r}, it answered {other!r:.80}")
                continue
            words = read_error(response.body)
            if response.status in (400, 403, 422, 501):
                if request.choices and words.names_unsupported(way):
                    self._choices.failed(way, f"it does not take the field {way!r} ({words.message})")
                    continue
                if self._fields.learn(words, body):
                    continue
                if request.n > 1 and words.refuses_n:
                    request = request.replace(n=1)
                    self._note_n_ignored(f"the server refuses n ({words.message})")
                    continue
            if response.status == 500 and self._fields.learn_content(words, body):
                continue
            raise self._error(response.status, words, asked, body, response.headers)

    def _error(
        self, status: int, words: ErrorWords, asked: Asked, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> BackendError:
        error = classify(status, words, asked, headers=headers)
        if isinstance(error, RequestRejected) and (name := refused_setting(words, body)) is not None:
            hint = f"leave out --{name.replace('_', '-')}"
            if name in PREFILL_FIELDS:
                hint = "it cannot continue a reply: leave out --prefill, or send text by --backend.endpoint completions"
            return FatalBackendError(f"the server does not take the request field {name!r} ({error})", hint=hint)
        return error

    def _read(
        self, server: Server, data: bytes, request: GenerateRequest, body: dict[str, Any], asked: Asked
    ) -> Generation:
        chat = self.config.endpoint == "chat"
        prompt = body.get("prompt")
        sent_ids = tuple(prompt) if isinstance(prompt, list | tuple) else None
        with_tokens = request.logprobs != "off"
        try:
            limit = body.get("max_tokens", body.get("max_completion_tokens"))
            generation, notes = read_answer(
                data, n=request.n, chat=chat, with_tokens=with_tokens, prompt_ids=sent_ids, limit=limit
            )
        except NoAnswer as none:
            self._counts["no_answer"] += 1
            if none.words is not None:
                words = read_error(data)
                if (status := code_inside(words)) is not None:
                    raise self._error(status, words, asked, body) from none
                reason = f"{none.reason}: {words.message}"
            else:
                reason = none.reason
            raise TransientBackendError(f"{server.address} answered 200 with {reason}") from none
        if asked.with_tools and self.capabilities.tools is None:
            self._learn(tools=True)
        self._note_count(request, notes)
        self._note_ends(notes, server, limit)
        if with_tokens:
            self._note_tokens(request, notes, server)
        return generation

    def _note_count(self, request: GenerateRequest, notes: Notes) -> None:
        """How many choices came, and how whole they were."""
        counts = self._counts
        if request.n > 1:
            if notes.choices < request.n:
                counts["n_ignored"] += 1
                self._note_n_ignored(f"{request.n} completions were asked for and {notes.choices} came")
            elif self.capabilities.n is None:
                self._learn(n=True)
        elif self.capabilities.n is False:
            counts["single_requests"] += 1
        if notes.bad_tool_calls:
            counts["bad_tool_calls"] += notes.bad_tool_calls

    def _note_ends(self, notes: Notes, server: Server, limit: Any) -> None:
        """How the completions ended, where that is not sure."""
        counts = self._counts
        if notes.no_finish_reason:
            counts["no_finish_reason"] += notes.no_finish_reason
        if notes.unknown_finish_reason:
            counts["unknown_finish_reason"] += notes.unknown_finish_reason
            self._tell_once(
                "finish",
                f"{server.address} ends replies with the finish reason {notes.unknown_reason!r}, which is not known: "
                "they count as incomplete",
            )
        if notes.stopped_at_max_tokens:
            counts["stopped_at_max_tokens"] += notes.stopped_at_max_tokens
            self._tell_once(
                "limit",
                f"{server.address} says 'stop' of a reply that has exactly max_tokens ({limit}) tokens: it may be cut "
                "off; such replies are counted as stopped_at_max_tokens",
            )

    def _note_n_ignored(self, reason: str) -> None:
        self._learn(n=False)
        self._tell_once("n", f"{reason}: from now on each request asks for one")

    def _note_tokens(self, request: GenerateRequest, notes: Notes, server: Server) -> None:
        """Which of the ids and logprobs came. Raises FatalBackendError where they are required and missing."""
        if not (notes.null_logprobs or notes.no_token_ids or notes.bad_token_ids or notes.bad_logprobs):
            if self.capabilities.logprobs is None or self.capabilities.token_ids is None:
                self._learn(logprobs=True, token_ids=True)
            return
        counts = self._counts
        counts["null_logprobs"] += notes.null_logprobs
        counts["no_token_ids"] += notes.no_token_ids
        counts["bad_token_ids"] += notes.bad_token_ids
        counts["bad_logprobs"] += notes.bad_logprobs
        if notes.null_logprobs:
            self._learn(logprobs=False)
            self._missing(request, "logprobs", self._logprobs_hint())
        elif self.capabilities.logprobs is None:
            self._learn(logprobs=True)
        if notes.no_token_ids:
            self._learn(token_ids=False)
            self._missing(
                request, "token_ids", "return_token_ids needs vLLM 0.10.2 or later, or SGLang 0.5.17 or later"
            )
        elif self.capabilities.token_ids is None:
            self._learn(token_ids=not notes.bad_token_ids)
        if notes.bad_token_ids:
            self._bad(request, "bad_token_ids", f"{server.address} sent token ids that are not integers below 2^31")
        if notes.bad_logprobs:
            self._bad(
                request, "bad_logprobs", f"{server.address} sent logprobs that do not fit the tokens or are not finite"
            )

    def _bad(self, request: GenerateRequest, what: str, text: str) -> None:
        """Token data came that cannot be right: an answer to ask for again if it is required, else said once."""
        if request.logprobs == "require":
            raise TransientBackendError(text)
        self._tell_once(what, f"{text}: they are left out and counted as {what}")

    def _logprobs_hint(self) -> str:
        if (said := self._fields.dropped.get("logprobs")) is not None:
            return f"the server refused the field: {said}"
        return "some servers need one more request field: --backend.extra-body '{\"top_logprobs\": 1}'"

    def _missing(self, request: GenerateRequest, what: str, hint: str) -> None:
        """A field did not come: stop the run if it is required, else say so once."""
        field = {"logprobs": "choices[].logprobs", "token_ids": "choices[].token_ids"}[what]
        if request.logprobs == "require":
            raise FatalBackendError(f"logprobs are required, but {field} is missing in the answer", hint=hint)
        self._tell_once(what, f"the server gives no {field}; rollouts are recorded without ({hint})")

    def _learn(self, **known: bool) -> None:
        capabilities: Capabilities = self.capabilities.replace(**known)
        self.capabilities = capabilities

    def _tell_once(self, kind: str, message: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s", message)
