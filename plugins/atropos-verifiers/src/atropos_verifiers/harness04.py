"""The harness of agents that have none of their own: a chat in this process, with the tools of the taskset over MCP."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

OVERFLOW = "ContextOverflow"


class ChatConfig(vf.HarnessConfig):  # type: ignore[misc]
    """No options of its own."""


class ChatHarness(vf.Harness[ChatConfig]):  # type: ignore[misc]
    """Asks the model until it calls no tool."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    SUPPORTS_TOOL_INTERCEPTION = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, *given: Any, tool_interception_url: str | None = None) -> Any:
        """One segment of the conversation, up to a reply without tool calls. given: see their Harness.launch()."""
        ctx, _, _, endpoint, secret, mcp_urls, data = given
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        async with AsyncExitStack() as stack:
            chat = Chat(endpoint, secret, ctx.model, tool_interception_url)
            if mcp_urls:
                servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
                chat.tools, chat.places, chat.servers = await connect_mcp({"mcpServers": servers}, stack)
            return await chat.run(messages)


class Http:
    """Connections to the interception server, kept for all rollouts."""

    session: aiohttp.ClientSession | None = None

    @classmethod
    def get(cls) -> aiohttp.ClientSession:
        if cls.session is None:
            cls.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
            )
        return cls.session


class Chat:
    """The requests of one segment."""

    def __init__(self, endpoint: str, secret: str, model: str, gate: str | None) -> None:
        self.url, self.model, self.gate = f"{endpoint}/chat/completions", model, gate
        self.headers = {"authorization": f"Bearer {secret}"}
        self.tools: list[dict[str, Any]] = []
        self.places: dict[str, tuple[str, str]] = {}
        self.servers: dict[str, Any] = {}

    async def run(self, messages: list[dict[str, Any]]) -> Any:
        """Ask, call the tools, and ask again. An exit code of 1 where a request was refused."""
        while True:
            body: dict[str, Any] = {"model": self.model, "messages": messages}
            if self.tools:
                body["tools"] = self.tools
            status, said = await self.post(self.url, body)
            if status != 200:
                over = OVERFLOW in said  # the conversation as far as it came is the rollout
                return vf.ProgramResult(exit_code=0 if over else 1, stdout="", stderr="" if over else said)
            reply = json.loads(said)["choices"][0]["message"]
            messages.append({key: value for key, value in reply.items() if value is not None})
            if not reply.get("tool_calls"):
                return vf.ProgramResult(exit_code=0, stdout="", stderr="")
            for call in reply["tool_calls"]:
                messages.append(await self.result(call))

    async def post(self, url: str, body: dict[str, Any]) -> tuple[int, str]:
        async with Http.get().post(url, json=body, headers=self.headers) as response:
            return response.status, await response.text()

    async def result(self, call: dict[str, Any]) -> dict[str, Any]:
        """What a tool answers, as a message; the fault of the call, where it cannot be made."""
        name, text = call["function"]["name"], call["function"]["arguments"] or "{}"
        message = {"role": "tool", "tool_call_id": call["id"], "name": name}
        try:
            arguments = json.loads(text)
        except json.JSONDecodeError as error:
            arguments = text
            fault = f"error: the arguments of {name} are not JSON: {error}"
        else:
            fault = "" if isinstance(arguments, dict) else f"error: the arguments of {name} are not a JSON object"
        if self.gate is not None:
            decided = await self.ask_gate(call["id"], name, arguments)
            if decided is not None:
                return decided
        if not fault and name not in self.places:
            fault = f"error: there is no tool {name!r}"
        return {**message, "content": fault or await call_mcp(self.servers, self.places, name, arguments)}

    async def ask_gate(self, call_id: str, name: str, arguments: Any) -> dict[str, Any] | None:
        """What the environment puts in the place of a call; None: make it. Raises RuntimeError where it stops."""
        assert self.gate is not None
        status, said = await self.post(self.gate, {"tool_call_id": call_id, "name": name, "arguments": arguments})
        decision: dict[str, Any] = json.loads(said) if status == 200 else {"action": "stop", "reason": said}
        if decision["action"] == "stop":
            raise RuntimeError(decision["reason"])
        denied: dict[str, Any] | None = decision["message"] if decision["action"] == "deny" else None
        return denied


__all__ = ["ChatHarness"]
