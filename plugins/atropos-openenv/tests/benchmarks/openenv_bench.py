"""CPU time of a rollout on an OpenEnv server with tools: `atropos gen` beside OpenEnv's own client, one after another.

python openenv_bench.py THEIR_PYTHON URL TOOL ARGUMENTS [ROLLOUTS]

Both reset, call a tool and leave; ours also lists the tools, scores and stores the rollouts. Each is a process that
plays N rollouts, and 5 N: what they differ by is the price of 4 N rollouts, without imports and starts. The own time of
the server is not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

THEIRS = """
import asyncio, inspect, json, sys
from openenv.core.generic_client import GenericEnvClient
async def value(given):
    return await given if inspect.isawaitable(given) else given
async def play(url, tool, arguments, count):
    for seed in range(count):
        client = GenericEnvClient(base_url=url)
        await value(client.connect())
        await value(client.reset(seed=seed))
        await value(client.step({"type": "call_tool", "tool_name": tool, "arguments": arguments}))
        await value(client.close())
asyncio.run(play(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])))
"""


def cpu(command: list[str]) -> float:
    """Seconds of a command and its children."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {command}")
    return usage.ru_utime + usage.ru_stime


def ours(url: str, tool: str, arguments: str, count: int, folder: Path) -> float:
    call = f"<tool_call>{json.dumps({'name': tool, 'arguments': json.loads(arguments)})}</tool_call>"
    words = ["gen", f"openenv:{url}", "--backend", "scripted", "--backend.replies", call, "--max-steps", "1"]
    sizes = ["--limit", str(count), "--group-size", "1", "--workers", "4", "-q", "-o", str(folder / f"run-{count}")]
    return cpu([sys.executable, "-m", "atropos_cli", *words, *sizes])


def main() -> None:
    python, url, tool, arguments, *more = sys.argv[1:]
    count = int(more[0]) if more else 100
    with tempfile.TemporaryDirectory() as folder:
        theirs = [cpu([python, "-c", THEIRS, url, tool, arguments, str(n)]) for n in (count, 5 * count)]
        mine = [ours(url, tool, arguments, n, Path(folder)) for n in (count, 5 * count)]
    for name, (few, many) in {"OpenEnv's client": theirs, "atropos gen": mine}.items():
        print(f"{name}: {(many - few) / (4 * count) * 1000:.2f} ms of CPU a rollout, {few:.2f} s for the first {count}")


if __name__ == "__main__":
    main()
