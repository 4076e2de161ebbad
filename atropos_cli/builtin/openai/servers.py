"""The model servers behind one backend: which is asked next, which is set aside, what each one serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from atropos_cli.builtin.openai.answer import read_json
from atropos_cli.builtin.openai.config import public_url
from atropos_cli.builtin.openai.errors import Asked, classify, read_error, unknown_model
from atropos_cli.builtin.openai.http import HttpClient, HttpResponse
from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.backends import BackendError, FatalBackendError, ServerUnavailable, TransientBackendError
from atropos_cli.sdk.secrets import redacted_bytes

T = TypeVar("T")
log = logging.getLogger("atropos.backend")

_QUICK = 5.0  # seconds for requests that no server needs long for
_FIRST_REST = 1.0
_LONGEST_REST = 15.0
_LONGEST_ASKED = 120.0  # a probe after that costs nothing, whatever the server said
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}


class Server:
    """One base URL: its connections, and what is known about it.

    url is without credentials. in_flight counts requests now under way. resting_until: set aside until
    then (time.monotonic()), after it did not answer; 0.0 when in use.
    """

    def __init__(self, base_url: str, headers: dict[str, str], key_env: str | None, *, secrets: bool) -> None:
        """secrets: the headers hold some, which the server could repeat in an answer of any status."""
        self.url = public_url(base_url)
        parts = urlsplit(self.url)
        self.base_path = parts.path.rstrip("/")
        self.root_path = self.base_path.removesuffix("/v1")
        self.client = HttpClient(self.url, headers)
        self.in_flight = 0
        self.resting_until = 0.0
        self.rest = _FIRST_REST
        self.probing = False
        self.kind = "openai-compatible"
        self.version: str | None = None
        self.models: tuple[str, ...] = ()
        self._key_env = key_env
        self._secrets = secrets

    @property
    def address(self) -> str:
        """host:port"""
        return self.client.address

    async def post(self, path: str, body: bytes, timeout: float) -> HttpResponse:
        """POST to a path below the base URL ("/chat/completions")."""
        return self._clean(await self.client.request("POST", self.base_path + path, body, timeout))

    async def post_root(self, path: str, body: bytes, timeout: float) -> HttpResponse:
        """POST to a path of the server itself, beside /v1."""
        return self._clean(await self.client.request("POST", self.root_path + path, body, timeout))

    async def get(self, path: str, *, root: bool = False) -> HttpResponse:
        """GET below the base URL, or below the server's root; for short answers only."""
        where = (self.root_path if root else self.base_path) + path
        return self._clean(await self.client.request("GET", where, None, _QUICK))

    def _clean(self, response: HttpResponse) -> HttpResponse:
        """The answer without the secrets that a server may repeat: in an error, or in what it says the model said."""
        if response.status == 200 and not self._secrets:
            return response
        body = redacted_bytes(response.body)
        return response if body is response.body else replace(response, body=body)

    def asked(self, model: str, path: str, *, endpoint: str = "chat", with_tools: bool = False) -> Asked:
        """What error texts need to know about a request to this server."""
        return Asked(
            address=self.address,
            url=self.url + path,
            model=model,
            endpoint=endpoint,
            with_tools=with_tools,
            key_env=self._key_env,
            models=self.models,
        )

    def error(self, response: HttpResponse, asked: Asked) -> BackendError:
        """The error of an answer other than 200. No secret shows, even where the server repeats it."""
        return classify(response.status, read_error(response.body), asked, headers=response.headers)

    async def discover(self, model: str | None) -> None:
        """Read /models. Raises ServerUnavailable, FatalBackendError (the key); other answers only leave it unknown."""
        try:
            response = await self.get("/models")
        except ServerUnavailable:
            raise
        except TransientBackendError as error:  # nothing else can be expected of it before this works
            raise ServerUnavailable(error.message, hint=error.hint, address=self.address) from error
        if response.status in (401, 402, 403, 407, 502, 503, 504) or 300 <= response.status < 400:
            raise self.error(response, self.asked(model or "", "/models"))
        if response.status != 200:
            log.debug("%s/models answered %d", self.url, response.status)
            return
        with contextlib.suppress(ValueError):
            self.models, owner = _listed(read_json(response.body))
            self.kind = _OWNERS.get(owner, self.kind)
        if self.kind == "vllm":
            with contextlib.suppress(BackendError, ValueError, AttributeError):
                version = read_json((await self.get("/version", root=True)).body).get("version")
                self.version = str(version) if version else None

    async def serves(self, model: str) -> bool:
        """Is the model there, as far as the server says?

        SGLang lists the folder of its last weights, and not the name it was started with, which its settings keep. It
        answers to any name.
        """
        if not self.models or model in self.models:
            return True
        info = await self._told("/server_info", "/get_server_info") if self.kind == "sglang" else None
        if info is None or model not in (info.get("served_model_name"), info.get("model_path")):
            return False
        self.models = (*self.models, model)
        return True

    async def _told(self, *paths: str) -> JsonDict | None:
        """The object at the first of the paths that this version of the server has."""
        for path in paths:
            with contextlib.suppress(BackendError, ValueError):
                response = await self.get(path, root=True)
                data = read_json(response.body) if response.status == 200 else None
                if isinstance(data, dict):
                    return data
        return None

    async def alive(self) -> bool:
        """Does it answer, ready for work? Asks for its health, then for its models; never for a generation."""
        # SGLang's /health generates a token when idle; its /ready does not.
        for path, root in (("/ready" if self.kind == "sglang" else "/health", True), ("/models", False)):
            try:
                response = await self.get(path, root=root)
            except BackendError:
                return False
            if response.status >= 500 and response.status != 501:
                return False
            if response.status < 400:
                return True
        return True

    async def weights(self) -> JsonDict | None:
        """Path and version of the weights, by SGLang's word; None where it names no version."""
        data = await self._told("/model_info", "/get_model_info") or {}
        version = data.get("weight_version")
        if not isinstance(version, str) or version in ("", "default"):
            return None
        return {"path": str(data.get("model_path")), "version": version}

    def describe(self) -> JsonDict:
        """URL and kind, for the run's record."""
        return {"url": self.url, "kind": self.kind, **({"version": self.version} if self.version else {})}


def _listed(data: Any) -> tuple[tuple[str, ...], str]:
    """Model ids and owner of a /models answer; nothing when it has another shape."""
    cards = data.get("data") if isinstance(data, dict) else None
    if not isinstance(cards, list) or not all(isinstance(c, dict) and isinstance(c.get("id"), str) for c in cards):
        return (), ""
    return tuple(card["id"] for card in cards), str(cards[0].get("owned_by", "")) if cards else ""


@dataclass(slots=True)
class ServerPool:
    """Servers of the same model. The one with the fewest requests in flight is asked next."""

    servers: Sequence[Server]
    failovers: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self, model: str | None) -> str:
        """Discover what is served; returns the model's name. Servers that do not answer are set aside.

        Raises ServerUnavailable when none answers, FatalBackendError when the model is not there.
        """
        results = await asyncio.gather(*(s.discover(model) for s in self.servers), return_exceptions=True)
        missing: ServerUnavailable | None = None
        for server, result in zip(self.servers, results, strict=True):
            if isinstance(result, ServerUnavailable):
                missing = result
                self.set_aside(server, result)
            elif isinstance(result, BaseException):
                raise result
        up = [server for server in self.servers if not server.resting_until]
        if not up:
            assert missing is not None
            raise missing
        if missing is not None:
            log.warning("%s; continuing with the other servers", missing)
        if model is None or (model == "default" and up[0].models and "default" not in up[0].models):
            if not up[0].models:
                raise FatalBackendError(f"{up[0].url} does not say which models it serves", hint="--model NAME")
            model = up[0].models[0]
        for server in up:
            if not await server.serves(model):
                raise unknown_model(model, server.models, server.address)
        return model

    async def call(self, send: Callable[[Server], Awaitable[T]]) -> T:
        """Run `send` on the server with most room; on another one if that is not available.

        Raises what `send` raises; ServerUnavailable only when no server is left.
        """
        tried: set[int] = set()
        while True:
            server = self._pick(tried)
            tried.add(id(server))
            server.in_flight += 1
            try:
                result = await send(server)
            except ServerUnavailable as error:
                self.set_aside(server, error)
                if all(other.resting_until or id(other) in tried for other in self.servers):
                    raise
                self.failovers += 1
            else:
                if server.resting_until:
                    self._take_back(server)
                return result
            finally:
                server.in_flight -= 1

    def _pick(self, tried: set[int]) -> Server:
        """Fewest in flight among those in use; when none is, the one set aside for longest gets a try."""
        self._probe_due()
        best: Server | None = None
        for server in self.servers:
            if (
                not server.resting_until
                and id(server) not in tried
                and (best is None or server.in_flight < best.in_flight)
            ):
                best = server
        return best or min(self.servers, key=lambda server: (id(server) in tried, server.resting_until))

    def set_aside(self, server: Server, error: ServerUnavailable) -> None:
        """Send nothing to this server until it is due for a probe."""
        if server.resting_until == 0.0 and len(self.servers) > 1:
            log.warning("%s is set aside: %s", server.address, error)
        server.resting_until = time.monotonic() + error.pause(server.rest, _LONGEST_ASKED)
        server.rest = min(server.rest * 2, _LONGEST_REST)

    def _take_back(self, server: Server) -> None:
        server.resting_until = 0.0
        server.rest = _FIRST_REST
        if len(self.servers) > 1:
            log.warning("%s is back", server.address)

    def _probe_due(self) -> None:
        """Start a probe of each server whose rest is over, beside the work of the others."""
        if len(self.servers) == 1:
            return
        now = time.monotonic()
        for server in self.servers:
            if server.resting_until and server.resting_until <= now and not server.probing:
                server.probing = True
                task = asyncio.get_running_loop().create_task(self._probe(server))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _probe(self, server: Server) -> None:
        try:
            if await server.alive():
                self._take_back(server)
            else:
                server.resting_until = time.monotonic() + server.rest
                server.rest = min(server.rest * 2, _LONGEST_REST)
        finally:
            server.probing = False

    async def probe(self) -> bool:
        """Is any server ready? Those that are, are taken back."""
        alive = await asyncio.gather(*(server.alive() for server in self.servers), return_exceptions=True)
        for server, ok in zip(self.servers, alive, strict=True):
            if ok is True and server.resting_until:
                self._take_back(server)
        return any(ok is True for ok in alive)

    def stale_retries(self) -> Iterator[int]:
        """Per server, how often a kept connection turned out to be closed."""
        return (server.client.stale_retries for server in self.servers)

    async def close(self) -> None:
        """Stop probing, close all connections."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self.servers:
            await server.client.close()
