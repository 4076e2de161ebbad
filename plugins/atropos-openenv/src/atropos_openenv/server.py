"""An environment of ours as a server that OpenEnv's clients play: a websocket for each session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from atropos_cli.sdk import AtroposError, FunctionCall, Message, ToolCall, assistant
from atropos_cli.sdk.engine import Hosted, HostedEpisode
from atropos_cli.sdk.foreign import Data

if TYPE_CHECKING:
    from aiohttp import web

REPLY = "reply"
"""The tool by which a client replies with a text where the model may call tools."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_BYTES = 16 << 20
_CLOSING_S = 2.0
_TEXT = {"type": "string"}
_MESSAGE = {
    "title": "Message",
    "description": "The reply of the model.",
    "type": "object",
    "properties": {"message": {**_TEXT, "description": "Its text."}},
    "required": ["message"],
    "additionalProperties": False,
}
_CALL = {
    "title": "CallToolAction",
    "description": "A call of one of the tools that list_tools shows.",
    "type": "object",
    "properties": {
        "type": {"const": "call_tool", "default": "call_tool", "type": "string"},
        "tool_name": {**_TEXT, "description": "Name of the tool."},
        "arguments": {"type": "object", "description": "What the tool is called with."},
    },
    "required": ["tool_name"],
    "additionalProperties": False,
}
_OBSERVATION = {
    "title": "Observation",
    "type": "object",
    "properties": {
        "text": {**_TEXT, "description": "What the model sees next. Its messages are in the metadata."},
        "metadata": {"type": "object"},
    },
}
_STATE = {
    "title": "State",
    "type": "object",
    "properties": {"episode_id": _TEXT, "step_count": {"type": "integer"}, "task": _TEXT, "done": {"type": "boolean"}},
}


class Refused(Exception):
    """A request that the client may correct, or that failed. code: OpenEnv's word for it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class EnvServer:
    """The sessions of a server, no more than `most` at once. local: only this machine is answered."""

    def __init__(self, host: Hosted, *, most: int, idle_s: float, local: bool) -> None:
        self._host = host
        self._most = most
        self._idle_s = idle_s
        self._local = local
        self._sockets: set[web.WebSocketResponse] = set()
        self._next = 0
        self.calls_tools = False
        """Does the model of this environment call tools?"""

    async def open(self) -> None:
        """Open the environment, and look at its first task: whether it has tools shows there."""
        await self._host.open(workers=self._most)
        episode = self._host.episode(self._host.task(0))
        try:
            await episode.reset()
            self.calls_tools = bool(episode.tools)
        finally:
            await episode.close()

    async def close(self) -> None:
        """End all sessions, and close the environment."""
        await asyncio.gather(*(socket.close() for socket in self._sockets), return_exceptions=True)
        await self._host.close()

    def app(self) -> web.Application:
        """What is served."""
        from aiohttp import web

        app = web.Application(middlewares=[_admission(self._local)])
        described = {"name": self._host.name, "description": self._host.summary, "version": "1"}
        action = _CALL if self.calls_tools else _MESSAGE
        for path, answer in (
            ("/health", {"status": "healthy"}),
            ("/metadata", described),
            ("/schema", {"action": action, "observation": _OBSERVATION, "state": _STATE}),
        ):
            app.router.add_get(path, _always(answer))
        app.router.add_get("/ws", self._talk)
        return app

    def number(self, seed: Any) -> int:
        """Of the task of a reset: its seed, or the one after that of the last reset without a seed."""
        if seed is None:
            self._next += 1
            return self._next - 1
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise Refused("VALIDATION_ERROR", f"seed is {seed!r}, not a number from 0: it chooses the task")
        return seed

    async def _talk(self, request: web.Request) -> web.WebSocketResponse:
        from aiohttp import web

        socket = web.WebSocketResponse(max_msg_size=_MOST_BYTES, timeout=_CLOSING_S)
        await socket.prepare(request)
        if len(self._sockets) >= self._most:
            counts = {"active_sessions": len(self._sockets), "max_sessions": self._most}
            await _error(socket, "CAPACITY_REACHED", f"all {self._most} sessions are in use", **counts)
            await socket.close()
            return socket
        self._sockets.add(socket)
        session = Session(self, self._host)
        try:
            with contextlib.suppress(ConnectionError):  # the client has left
                await self._answer_all(socket, session)
        finally:
            try:
                await session.close()
            finally:
                self._sockets.discard(socket)
        await socket.close()
        return socket

    async def _answer_all(self, socket: web.WebSocketResponse, session: Session) -> None:
        """Until the client leaves, or is silent for too long.

        The next message is awaited while one is answered: an environment that hangs would else keep the session of a
        client that has left.
        """
        coming = asyncio.ensure_future(socket.receive())
        answering: asyncio.Future[None] | None = None
        try:
            while True:
                await asyncio.wait((coming,), timeout=self._idle_s)
                if not coming.done():
                    await _error(socket, "SESSION_ERROR", f"no message for {self._idle_s:g} s")
                    return
                message = coming.result()
                if not _is_data(message):
                    return
                try:
                    kind, data = _read(message.data)
                except Refused as refused:
                    await _error(socket, refused.code, str(refused))
                    coming = asyncio.ensure_future(socket.receive())
                    continue
                if kind == "close":
                    return
                coming = asyncio.ensure_future(socket.receive())
                answering = asyncio.ensure_future(self._answer(socket, session, kind, data))
                await asyncio.wait((coming, answering), return_when=asyncio.FIRST_COMPLETED)
                if coming.done() and not answering.done() and not _is_data(coming.result()):
                    return
                await answering
        finally:
            coming.cancel()
            if answering is not None and not answering.done():
                answering.cancel()
                await asyncio.wait((answering,), timeout=_CLOSING_S)

    async def _answer(self, socket: web.WebSocketResponse, session: Session, kind: str, data: Data) -> None:
        """Answer one message. An environment's error is an answer too, and the session stays."""
        try:
            answer = await session.answer(kind, data)
        except Refused as refused:
            await _error(socket, refused.code, str(refused))
        except AtroposError as error:
            await _error(socket, "EXECUTION_ERROR", error.message)
        except Exception as error:  # noqa: BLE001 - see above
            await _error(socket, "EXECUTION_ERROR", f"{type(error).__name__}: {error}")
        else:
            await socket.send_json(answer)


class Session:
    """The episodes of one client, one after the other."""

    def __init__(self, server: EnvServer, host: Hosted) -> None:
        self._server = server
        self._host = host
        self._episode: HostedEpisode | None = None
        self._id = ""
        self._steps = 0
        self._over = False

    async def answer(self, kind: str, data: Data) -> Data:
        """The answer to a message. Raises Refused."""
        if kind == "reset":
            return _said("observation", await self._reset(data))
        if kind == "step":
            return _said("observation", await self._step(data))
        if kind == "state":
            return _said("state", self._state())
        if kind == "mcp":
            return _said("mcp", self._mcp(data))
        raise Refused("UNKNOWN_TYPE", f"unknown type of message: {kind!r}")

    async def close(self) -> None:
        """Close the episode."""
        if self._episode is not None:
            episode, self._episode = self._episode, None
            await episode.close()

    async def _reset(self, data: Data) -> Data:
        number = self._server.number(data.get("seed"))
        await self.close()
        self._episode = self._host.episode(self._host.task(number))
        self._id = str(data.get("episode_id") or uuid4())
        self._steps = 0
        self._over = False
        try:
            messages = await self._episode.reset()
        except BaseException:
            await self.close()
            raise
        return self._observation({"text": _text(messages)}, messages)

    async def _step(self, action: Data) -> Data:
        episode = self._episode
        if episode is None:
            raise Refused("EXECUTION_ERROR", "no episode has started: reset first")
        if self._server.calls_tools and action.get("type") == "list_tools":
            return self._observation({"tools": self._tools(episode)}, ())
        if self._over:
            raise Refused("EXECUTION_ERROR", "the episode is over: reset first")
        name, reply = self._reply(action)
        self._steps += 1
        self._over = True  # unless the environment goes on; after an error it does not
        messages = await episode.step(reply)
        self._over = episode.over
        text = _text(messages)
        shown: Data = {"text": text}
        if name is not None:
            result = {"content": [{"type": "text", "text": text}], "data": text, "is_error": False}
            shown = {"tool_name": name, "result": result, "error": None}
        if not self._over:
            return self._observation(shown, messages)
        rollout = await episode.score()
        ended: Data = {"rewards": rollout.rewards, "metrics": rollout.metrics, "stop_reason": rollout.stop_reason}
        return self._observation(shown, messages, rollout.reward, ended)

    def _reply(self, action: Data) -> tuple[str | None, Message]:
        """The tool that is called, if any, and the model's message."""
        if not self._server.calls_tools:
            return None, assistant(_field(action, "message", str))
        name = _field(action, "tool_name", str)
        arguments = _field({"arguments": {}, **action}, "arguments", dict)
        if name == self._reply_name():
            return name, assistant(_field(arguments, "text", str))
        call = ToolCall(id=f"call_{self._steps}", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
        return name, Message(role="assistant", content="", tool_calls=(call,))

    def _reply_name(self) -> str:
        assert self._episode is not None
        own = {item["name"] for item in _functions(self._episode)}
        return REPLY if REPLY not in own else f"{REPLY}_text"

    def _tools(self, episode: HostedEpisode) -> list[Data]:
        """As MCP lists them, and one more: the reply without a call."""
        made = [
            {
                "name": item["name"],
                "description": item.get("description") or "",
                "input_schema": item.get("parameters") or {"type": "object", "properties": {}},
            }
            for item in _functions(episode)
        ]
        about = "Reply with a text instead of a call: an answer, or words to the user."
        fields = {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]}
        return [*made, {"name": self._reply_name(), "description": about, "input_schema": fields}]

    def _mcp(self, request: Data) -> Data:
        """Tools are listed so as well; they are called by steps, which have rewards."""
        answer: Data = {"jsonrpc": "2.0", "id": request.get("id")}
        if request.get("method") != "tools/list":
            return {**answer, "error": {"code": -32601, "message": "only tools/list; call tools by steps"}}
        if self._episode is None or not self._server.calls_tools:
            return {**answer, "error": {"code": -32603, "message": "no tools here: reset first, or see /schema"}}
        return {**answer, "result": {"tools": self._tools(self._episode)}}

    def _state(self) -> Data:
        task = self._episode.task.id if self._episode is not None else None
        return {"episode_id": self._id or None, "step_count": self._steps, "task": task, "done": self._over}

    def _observation(
        self, shown: Data, messages: Sequence[Message], reward: float | None = None, more: Data | None = None
    ) -> Data:
        assert self._episode is not None
        told = [message.model_dump(mode="json", include={"role", "content", "name"}) for message in messages]
        metadata = {"task": self._episode.task.id, "messages": told, **(more or {})}
        return {
            "observation": {**shown, "metadata": metadata},
            "reward": reward if reward is not None and math.isfinite(reward) else None,
            "done": self._over,
            "metadata": metadata,
        }


def _functions(episode: HostedEpisode) -> list[Data]:
    functions: list[Any] = [tool["function"] for tool in episode.tools]
    return functions


def _is_data(message: Any) -> bool:
    """Is it a message of the client? Else the connection ends."""
    from aiohttp import WSMsgType

    return message.type in (WSMsgType.TEXT, WSMsgType.BINARY)


def _said(kind: str, data: Data) -> Data:
    return {"type": kind, "data": data}


def _read(text: str | bytes) -> tuple[str, Data]:
    """The type and the data of a message. Raises Refused."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("INVALID_JSON", f"invalid JSON: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("data", {}), dict):
        raise Refused("VALIDATION_ERROR", 'a message is an object: {"type": ..., "data": {...}}')
    return str(message.get("type", "")), message.get("data", {})


def _field(values: Data, name: str, kind: type[Any]) -> Any:
    value = values.get(name)
    if not isinstance(value, kind):
        wanted = "a text" if kind is str else "an object"
        raise Refused("VALIDATION_ERROR", f"the action's {name!r} is not {wanted}; /schema describes actions")
    return value


def _text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.text for message in messages)


async def _error(socket: web.WebSocketResponse, code: str, text: str, **more: Any) -> None:
    await socket.send_json({"type": "error", "data": {"message": text, "code": code, **more}})


def _always(answer: Data) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    from aiohttp import web

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(answer)

    return handler


def _admission(local: bool) -> Any:
    """Refuse requests of web sites that somebody on this machine looks at, by the headers that browsers send."""
    from aiohttp import web

    @web.middleware
    async def admit(request: web.Request, handler: Any) -> Any:
        host = request.headers.get("Host", "")
        if local and host.rpartition(":")[0].strip("[]") not in LOOPBACK and host.strip("[]") not in LOOPBACK:
            raise web.HTTPMisdirectedRequest(text="this server answers to this machine only")
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("//")[2] != host:
            raise web.HTTPForbidden(text="requests of other web sites are refused")
        return await handler(request)

    return admit
