"""Run by a Python with OpenEnv: its own clients play an environment that `atropos serve-env` serves.

python their_client.py URL text REPLY...        one episode: resets with seed 1, gives the replies
python their_client.py URL tools CALL...        CALL is JSON: [name, {arguments}]
python their_client.py URL sessions N           how many of N clients get a session at once
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from typing import Any

from openenv.core.generic_client import GenericEnvClient


async def value(given: Any) -> Any:
    """Clients before 0.3 are synchronous."""
    return await given if inspect.isawaitable(given) else given


async def play(url: str, kind: str, given: list[str]) -> Any:
    if kind == "text":
        client = GenericEnvClient(base_url=url)
        await value(client.connect())
        result = await value(client.reset(seed=1))
        seen = [result.observation["text"]]
        for reply in given:
            result = await value(client.step({"message": reply}))
            seen.append(result.observation["text"])
        state = await value(client.state())
        await value(client.close())
        return {"seen": seen, "reward": result.reward, "done": result.done, "state": state}
    if kind == "tools":
        client = GenericEnvClient(base_url=url)
        await value(client.connect())
        await value(client.reset(seed=1))
        listed = await value(client.step({"type": "list_tools"}))
        results = []
        for call in given:
            name, arguments = json.loads(call)
            result = await value(client.step({"type": "call_tool", "tool_name": name, "arguments": arguments}))
            results.append(result.observation["result"]["data"])
        await value(client.close())
        tools = [tool["name"] for tool in listed.observation["tools"]]
        return {"tools": tools, "results": results, "reward": result.reward, "done": result.done}
    clients, refused = [], []
    for _ in range(int(given[0])):
        client = GenericEnvClient(base_url=url)
        try:
            await value(client.connect())
            await value(client.reset())
        except Exception as error:
            refused.append(str(error))
        else:
            clients.append(client)
    for client in clients:
        await value(client.close())
    return {"sessions": len(clients), "refused": refused}


print(json.dumps(asyncio.run(play(sys.argv[1], sys.argv[2], sys.argv[3:]))))
