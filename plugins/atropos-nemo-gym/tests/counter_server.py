"""A resource server as NeMo Gym has them, without its package: a counter for each session, which tools change."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from aiohttp import web

NEEDED = ("id", "object", "created_at", "model", "output", "parallel_tool_calls", "tool_choice", "tools")


class CounterServer:
    """fail_verify: how many of the next verifications answer 500. hang: does verify never answer?"""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.verified: list[dict[str, Any]] = []
        self.fail_verify = 0
        self.hang = False
        self.ports: list[int] = []
        self.described = '{"paths": {"/verify": {}, "/seed_session": {}}}'
        self._sessions = itertools.count(1)

    async def start(self) -> tuple[web.AppRunner, str]:
        app = web.Application()
        app.router.add_get("/openapi.json", self._routes)
        for name in ("seed_session", "verify", "add", "get"):
            app.router.add_post(f"/{name}", getattr(self, f"_{name}"))
        runner = web.AppRunner(app, shutdown_timeout=0.2)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _routes(self, request: web.Request) -> web.Response:
        return web.Response(text=self.described, content_type="application/json")

    async def _seed_session(self, request: web.Request) -> web.Response:
        row = await request.json()
        answer = web.json_response({})
        session = f"s{next(self._sessions)}"
        self.counters[session] = row["initial"]
        answer.set_cookie("session", session)
        return answer

    async def _add(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.ports.append(request.transport.get_extra_info("peername")[1])
        body = await request.json()
        if not isinstance(body.get("count"), int):
            return web.json_response({"detail": "count is no integer"}, status=422)
        self.counters[request.cookies["session"]] += body["count"]
        return web.json_response({"success": True})

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response({"count": self.counters[request.cookies["session"]]})

    async def _verify(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        if self.hang:
            await asyncio.sleep(60)
        body = await request.json()
        if self.fail_verify:
            self.fail_verify -= 1
            return web.json_response({"detail": "out of order"}, status=500)
        lacking = [name for name in NEEDED if name not in body["response"]]
        if lacking:
            return web.json_response({"detail": lacking}, status=422)
        self.verified.append(body)
        count = self.counters[request.cookies["session"]]
        self.ports.append(request.transport.get_extra_info("peername")[1])
        said = {**body, "reward": float(count == body["expected"]), "off_by": abs(count - body["expected"])}
        return web.json_response({**said, "exact": count == body["expected"], "why": "the count"})
