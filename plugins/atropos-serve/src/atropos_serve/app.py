"""The HTTP interface: the paths, answers and keys of atroposlib's server, and what ours adds to them."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import time
import zlib
from importlib import resources
from typing import Annotated, Any

import orjson
from fastapi import Body, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.middleware.gzip import GZipMiddleware

from atropos_serve.exchange import Batch, Exchange, QueueFull
from atropos_serve.gate import Direct, Gate, Rules
from atropos_serve.metrics import CONTENT_TYPE, Metrics
from atropos_serve.status import live, status, status_env
from atropos_serve.wire import (
    NO_EXAMPLE,
    EnvIdentifier,
    Group,
    Refused,
    RegisterEnv,
    Registration,
    read_group,
    read_groups,
)

PATIENCE = 5.0
"""How long a full queue holds a request before it is sent away."""
_LOOK = 0.1
_LEAST_ZIPPED = 1000
_LONGEST_LEASE = 7 * 86400
_JSON = "application/json"
_RECEIVED = b'{"status":"received"}'
_DUPLICATE = b'{"status":"received","duplicate":true}'
_NO_BATCH = b'{"batch":null}'
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}

log = logging.getLogger("atropos_serve")

_NUMBERS = r"^(\d{1,15}( *, *\d{1,15})*)?$"
"""With blanks, since programs that join headers add them; none for a trainer that has nothing to acknowledge."""

_LONGEST_DONE = 1000
_PLAIN_DONE = re.compile(rb"(\d{1,15}(,\d{1,15})*)?")
_PLAIN_LEASE = re.compile(rb"([1-9]\d{0,4})?")
"""Up to a day, in whole seconds; the application reads others."""

Lease = Annotated[float | None, Header(alias="X-Atropos-Lease", gt=0, le=_LONGEST_LEASE, allow_inf_nan=False)]
Done = Annotated[str | None, Header(alias="X-Atropos-Ack", max_length=_LONGEST_DONE, pattern=_NUMBERS)]
BatchId = Annotated[int, Path(ge=1, le=2**53)]

_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 200},
    "description": "A request with a key that the server has seen is answered like the first, and stores nothing.",
}


def _takes(schema: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI of a request whose body the endpoint reads itself."""
    body = {"required": True, "content": {_JSON: {"schema": schema}}}
    return {"requestBody": body, "parameters": [_KEY_HEADER]}


def make_app(exchange: Exchange, rules: Rules, *, allow_reset: bool = True) -> FastAPI:
    """The application of one exchange."""
    app = FastAPI(
        title="atropos trajectory server",
        description="Environments push scored groups, trainers pull batches.",
        docs_url=None,
        redoc_url=None,
    )
    _registration(app, exchange, allow_reset)
    _environments(app, exchange)
    direct = {("POST", "/scored_data"): _groups(app, exchange), ("GET", "/batch"): _batches(app, exchange)}
    _observed(app, exchange, rules)
    _failures(app)
    app.add_middleware(GZipMiddleware, minimum_size=_LEAST_ZIPPED, compresslevel=1)
    app.add_middleware(Gate, rules=rules, direct=direct)
    return app


def _registration(app: FastAPI, exchange: Exchange, allow_reset: bool) -> None:
    @app.get("/")
    async def root() -> dict[str, str]:
        return {"message": "atropos trajectory server"}

    @app.post("/register", tags=["trainer"])
    async def register(registration: Registration) -> dict[str, int]:
        """Register a trainer. After a second registration the new values hold; the queue stays."""
        return {"uuid": exchange.register(registration)}

    @app.get("/wandb_info", tags=["environment"])
    async def wandb_info() -> dict[str, str | None]:
        found = exchange.registration
        if found is None:
            return {"group": None, "project": None}
        return {"group": found.wandb_group, "project": found.wandb_project}

    @app.get("/info", tags=["environment"])
    async def info() -> dict[str, int]:
        found = exchange.registration
        if found is None:
            return {"batch_size": -1, "max_token_len": -1}
        return {"batch_size": found.batch_size, "max_token_len": found.max_token_len}

    @app.get("/reset_data", tags=["trainer"], response_class=PlainTextResponse)
    async def reset_data() -> PlainTextResponse:
        """Forget trainer and queue. Running environments continue with their ids."""
        if not allow_reset:
            return PlainTextResponse("this server was started with --no-reset\n", status_code=403)
        exchange.reset()
        return PlainTextResponse("Reset successful")


def _environments(app: FastAPI, exchange: Exchange) -> None:
    @app.post("/register-env", tags=["environment"])
    async def register_env(register_env: RegisterEnv) -> dict[str, Any]:
        """Register an environment; it must wait until a trainer has asked for a batch."""
        env = exchange.register_env(register_env)
        if env is None or exchange.registration is None:
            return {"status": "wait for trainer to start"}
        return {
            "status": "success",
            "env_id": env.id,
            "wandb_name": env.name,
            "checkpoint_dir": exchange.registration.checkpoint_dir,
            "starting_step": exchange.step,
            "checkpoint_interval": exchange.registration.save_checkpoint_interval,
            "num_steps": exchange.registration.num_steps,
        }

    @app.post("/disconnect-env", tags=["environment"])
    async def disconnect_env(disconnect_env: EnvIdentifier) -> dict[str, str]:
        if exchange.disconnect(disconnect_env.env_id):
            return {"status": "success"}
        return {"status": "failure", "error": f"no environment has the id {disconnect_env.env_id}"}

    @app.get("/status-env", tags=["environment"])
    async def get_status_env(
        env: Annotated[EnvIdentifier | None, Body()] = None, env_id: Annotated[int | None, Query()] = None
    ) -> dict[str, Any]:
        """How far the trainer is and how full the queue; asked with the id in a body, as atroposlib does."""
        asked = env.env_id if env is not None else env_id
        if asked is None:
            raise Refused.because("the id of an environment is missing", "env_id")
        return status_env(exchange, asked)


def _groups(app: FastAPI, exchange: Exchange) -> Direct:
    one = Group.model_json_schema()

    async def take(headers: dict[bytes, bytes], body: bytes) -> Response:
        try:
            group = read_group(body)
            await _room(exchange)
            ready = exchange.add([group], _key(headers), _step(headers))
        except _FAILURES as error:
            return _failure(error)
        if ready is None:
            return Response(_DUPLICATE, media_type=_JSON)
        if ready[0]:
            return Response(_RECEIVED, media_type=_JSON)
        return JSONResponse({"status": "buffered", "buffer_size": exchange.queue.buffered(group.env_id)})

    @app.post("/scored_data", tags=["environment"], openapi_extra=_takes(one))
    async def scored_data(request: Request) -> Response:
        """Store a group. It is on disk when the answer comes."""
        return await take(dict(request.headers.raw), await request.body())

    @app.post("/scored_data_list", tags=["environment"], openapi_extra=_takes({"type": "array", "items": one}))
    async def scored_data_list(request: Request) -> dict[str, Any]:
        """Store several groups: all, or after an error none."""
        headers = dict(request.headers.raw)
        groups = read_groups(await request.body())
        await _room(exchange)
        ready = exchange.add(groups, _key(headers), _step(headers)) if groups else []
        answer: dict[str, Any] = {"status": "received", "groups_processed": len(groups)}
        if ready is None:
            return {**answer, "duplicate": True}
        if not all(ready):
            last = max(place for place, done in enumerate(ready) if not done)
            answer["buffered"] = len(ready) - sum(ready)
            answer["last_buffer_size"] = exchange.queue.buffered(groups[last].env_id)
        return answer

    @app.get("/latest_example", tags=["trainer"])
    async def latest_example() -> Response:
        return Response(exchange.latest or orjson.dumps(NO_EXAMPLE), media_type=_JSON)

    return take


async def _room(exchange: Exchange) -> None:
    """Back-pressure: hold a request while the queue is full, but not for ever."""
    for _ in range(int(PATIENCE / _LOOK)):
        if not exchange.full():
            return
        await asyncio.sleep(_LOOK)


def _key(headers: dict[bytes, bytes]) -> str | None:
    key = headers.get(b"idempotency-key")
    if key is not None and not 0 < len(key) <= 200:
        raise Refused.because("an Idempotency-Key has 1 to 200 characters")
    return None if key is None else key.decode("latin-1")


def _step(headers: dict[bytes, bytes]) -> int | None:
    step = headers.get(b"x-atropos-step", b"")
    return int(step) if step.isdigit() and len(step) < 16 else None


def _batches(app: FastAPI, exchange: Exchange) -> Direct:
    def give(lease: float | None, done: str, *, gzip: bool = False) -> Response:
        for batch in done.split(","):
            if batch:
                exchange.acknowledge(int(batch))
        if exchange.registration is None:
            message = "Trainer not registered. Call /register first."
            return JSONResponse({"status": "error", "message": message, "batch": []})
        found = exchange.next_batch(lease)
        return Response(_NO_BATCH, media_type=_JSON) if found is None else _batch(found, gzip=gzip)

    async def directly(headers: dict[bytes, bytes], body: bytes) -> Response | None:
        """Without the application where the headers are as they should be: it names the faults of others."""
        lease, done = headers.get(b"x-atropos-lease", b""), headers.get(b"x-atropos-ack", b"")
        if not _PLAIN_LEASE.fullmatch(lease) or not _PLAIN_DONE.fullmatch(done) or len(done) > _LONGEST_DONE:
            return None
        try:
            gzip = b"gzip" in headers.get(b"accept-encoding", b"")
            return give(float(lease) if lease else None, done.decode(), gzip=gzip)
        except _FAILURES as error:
            return _failure(error)

    @app.get("/batch", tags=["trainer"])
    async def get_batch(lease: Lease = None, done: Done = None) -> Response:
        """The next batch, or null.

        With the header X-Atropos-Lease it is lent for that many seconds: unless it is acknowledged by then, the next
        request gets it again, under the same id. X-Atropos-Ack acknowledges earlier batches in the same request.
        """
        return give(lease, done or "")

    @app.post("/batch/{batch}/ack", tags=["trainer"], responses={404: {"description": "no such batch"}})
    async def acknowledge(batch: BatchId) -> JSONResponse:
        """The batch is trained on, or safe with the trainer. May be repeated."""
        return _answer(exchange.acknowledge(batch), f"no batch has the id {batch}")

    @app.post("/batch/{batch}/renew", tags=["trainer"], responses={404: {"description": "no such batch"}})
    async def renew(
        batch: BatchId, seconds: Annotated[float, Query(ge=0, le=_LONGEST_LEASE, allow_inf_nan=False)] = 60.0
    ) -> JSONResponse:
        """Lend a batch longer; 0 seconds gives it back."""
        return _answer(exchange.renew(batch, seconds) is not None, f"no trainer has a batch with the id {batch}")

    return directly


def _answer(good: bool, error: str) -> JSONResponse:
    if good:
        return JSONResponse({"status": "success"})
    return JSONResponse({"status": "failure", "error": error}, status_code=404)


def _batch(found: Batch, *, gzip: bool) -> Response:
    parts = [b'{"batch":[', b",".join(group.body or b"null" for group in found.groups), b"]"]
    headers = {}
    if found.id is not None and found.expires is not None:
        parts.append(b',"batch_id":%d,"lease_expires":%.3f' % (found.id, found.expires))
        headers["X-Atropos-Batch"] = str(found.id)
    body = b"".join([*parts, b"}"])
    if gzip and len(body) >= _LEAST_ZIPPED:
        body = zlib.compress(body, 1, 31)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(body, media_type=_JSON, headers=headers)


def _observed(app: FastAPI, exchange: Exchange, rules: Rules) -> None:
    metrics = Metrics(exchange, rules.requests)

    @app.get("/status", tags=["trainer"])
    async def get_status() -> dict[str, Any]:
        """Step and queue; `reason`: why there is no batch, null if there is one."""
        return status(exchange)

    @app.get("/live/data", tags=["observer"])
    async def live_data() -> dict[str, Any]:
        return live(exchange, time.time())

    @app.get("/metrics", tags=["observer"], response_class=PlainTextResponse)
    async def get_metrics() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    @app.get("/live", include_in_schema=False)
    async def live_page() -> Response:
        return _asset("live.html")

    @app.get("/docs", include_in_schema=False)
    async def docs_page() -> Response:
        return _asset("docs.html")

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        return _asset(name) if name in ("live.js", "docs.js", "page.css") else PlainTextResponse("not here\n", 404)


def _asset(name: str) -> Response:
    content = resources.files("atropos_serve").joinpath("assets", name).read_bytes()
    headers = {"Content-Security-Policy": _POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]], headers=headers)


_FAILURES = (Refused, QueueFull, OSError, sqlite3.OperationalError)


def _failure(error: Exception) -> JSONResponse:
    if isinstance(error, Refused):
        return JSONResponse({"detail": error.errors}, status_code=422)
    again = {"Retry-After": "5"}
    if isinstance(error, QueueFull):
        text = "the queue is full: no trainer takes the batches"
        return JSONResponse({"status": "full", "detail": text}, status_code=503, headers=again)
    log.error("cannot write the queue: %s", error)
    text = f"the queue cannot be written: {error}"
    return JSONResponse({"status": "error", "detail": text}, status_code=503, headers=again)


def _failures(app: FastAPI) -> None:
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return _failure(error)

    for kind in _FAILURES:
        app.add_exception_handler(kind, failed)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        found = [{name: one[name] for name in ("type", "loc", "msg")} for one in error.errors()]
        return JSONResponse({"detail": found}, status_code=422)
