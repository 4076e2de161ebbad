"""A server that speaks OpenEnv's protocol, with three kinds of actions: a guess as JSON, a text, calls of tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web

SCHEMAS: dict[str, dict[str, Any]] = {
    "json": {
        "title": "Guess",
        "type": "object",
        "properties": {"metadata": {"type": "object"}, "value": {"type": "integer"}, "unit": {"type": "string"}},
        "required": ["value"],
    },
    "text": {
        "type": "object",
        "properties": {"metadata": {"type": "object"}, "answer": {"type": "string"}},
        "required": ["answer"],
    },
    "tools": {
        "type": "object",
        "properties": {
            "metadata": {"type": "object"},
            "type": {"const": "call_tool"},
            "tool_name": {"type": "string"},
            "arguments": {"type": "object"},
        },
        "required": ["tool_name"],
    },
}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


class GuessServer:
    """Guess the seed: a reward of 1 and the end. An action `die` breaks the connection, `fail` is an error."""

    def __init__(self, kind: str, sessions: int = 64, delay_s: float = 0.0) -> None:
        self.kind = kind
        self.sessions = sessions
        self.delay_s = delay_s
        self.open = self.most = self.refused = self.resets = 0
        self.away = 0
        """How many connections are refused, as by the proxy of a server that restarts."""
        self.alter: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda said: [said]
        """From the answer that is right to those that are sent."""
        self.described: Any = {"action": SCHEMAS[kind], "observation": {}, "state": {}}

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_get("/schema", self.schema)
        app.router.add_get("/ws", self.socket)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        return runner, f"http://127.0.0.1:{port}"

    async def schema(self, request: web.Request) -> web.Response:
        text = self.described if isinstance(self.described, str) else json.dumps(self.described)
        return web.Response(text=text, content_type="application/json")

    async def socket(self, request: web.Request) -> web.StreamResponse:
        if self.away > 0:
            self.away -= 1
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.open >= self.sessions:
            self.refused += 1
            await error(socket, "CAPACITY_REACHED", "no more sessions")
            await socket.close()
            return socket
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            seed = 0
            async for message in socket:
                if message.type != WSMsgType.TEXT:
                    continue
                given = json.loads(message.data)
                if given["type"] == "close":
                    break
                if given["type"] == "mcp":
                    said = {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "result": {"tools": [ADD]}}}
                    for answer in self.alter(said):
                        await socket.send_json(answer)
                elif given["type"] == "reset":
                    self.resets += 1
                    seed = given["data"]["seed"]
                    await self.observe(socket, {"hint": f"the number is {seed}", "nothing": None}, None, False)
                else:
                    await asyncio.sleep(self.delay_s)
                    await self.act(socket, given["data"], seed)
        finally:
            self.open -= 1
        return socket

    async def act(self, socket: web.WebSocketResponse, action: dict[str, Any], seed: int) -> None:
        if self.kind == "tools":
            await self.call(socket, action)
            return
        value = action.get("value", action.get("answer"))
        if value == "die":
            await socket.close()
        elif value == "fail":
            await error(socket, "EXECUTION_ERROR", "the action failed")
        elif self.kind == "json" and not isinstance(value, int):
            await error(socket, "VALIDATION_ERROR", "Invalid message", [{"loc": ["value"], "msg": "not an integer"}])
        else:
            right = str(value) == str(seed)
            await self.observe(socket, {"hint": "right" if right else "wrong"}, float(right), right)

    async def call(self, socket: web.WebSocketResponse, action: dict[str, Any]) -> None:
        given = action["arguments"]
        result = {"content": [{"type": "text", "text": str(given["a"] + given["b"])}]}
        seen = {"metadata": {}, "tool_name": action["tool_name"], "result": result, "error": None}
        await self.observe(socket, seen, 0.5, False)

    async def observe(
        self, socket: web.WebSocketResponse, seen: dict[str, Any], reward: float | None, done: bool
    ) -> None:
        said = {"type": "observation", "data": {"observation": seen, "reward": reward, "done": done}}
        for answer in self.alter(said):
            await socket.send_json(answer)


async def error(socket: web.WebSocketResponse, code: str, message: str, errors: Any = None) -> None:
    data = {"message": message, "code": code} | ({"errors": errors} if errors else {})
    await socket.send_json({"type": "error", "data": data})
