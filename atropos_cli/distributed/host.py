"""Our side of the episodes: `python -m atropos_cli.distributed.host FOLDER`, started by `inside` on a trainer's node.

Requests for replies go to the trainer, which has the model; everything else of an episode is the engine's, as in `gen`.
FOLDER holds the plans (plans/NAME.json); finished rollouts are appended to FOLDER/rollouts, one file a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from atropos_cli.distributed.inside import FATAL
from atropos_cli.distributed.requests import completion_of, request_data
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.plan import Plan
from atropos_cli.domain.rollout import RolloutFailure
from atropos_cli.domain.task import Task
from atropos_cli.errors import AtroposError, ContextOverflow, RequestRejected
from atropos_cli.io.append import atomic_write
from atropos_cli.plugins.discovery import load_registry
from atropos_cli.plugins.registry import Registry
from atropos_cli.ports.backend import Capabilities, GenerateRequest, Generation, InferenceBackend
from atropos_cli.redaction import redacted
from atropos_cli.rollout.player import Player

PLANS, ROLLOUTS = "plans", "rollouts"
_LONGEST = 1 << 28
_asked: ContextVar[Conversation] = ContextVar("asked")


class Conversation:
    """The requests of one episode: one at a time, each answered by the trainer."""

    def __init__(self, send: Callable[[dict[str, Any]], None], number: int) -> None:
        self._send, self._number = send, number
        self._waiting: asyncio.Future[dict[str, Any]] | None = None

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The trainer's reply. Raises RequestRejected for a second request at once."""
        if self._waiting is not None:
            raise RequestRejected("this environment asks for several replies at once; the trainer gives one at a time")
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            self._send({"id": self._number, "ask": question})
            return await self._waiting
        finally:
            self._waiting = None

    def answered(self, reply: dict[str, Any]) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(reply)


class TrainersModel(InferenceBackend):
    """The model that is trained, asked through the conversation of the episode that runs."""

    name = "trainer"

    def __init__(self, model: str | None) -> None:
        super().__init__(None, model=model)
        self.capabilities = Capabilities(n=False)

    async def generate(self, request: GenerateRequest) -> Generation:
        """See the port. Raises ContextOverflow where the trainer has no room left."""
        if request.n != 1 or not request.messages or request.prefill or request.choices:
            raise RequestRejected("the trainer gives one plain reply to messages: no prefill, no choices, no ids alone")
        reply = await _asked.get().ask(request_data(request))
        if reply.get("overflow"):
            raise ContextOverflow("the trainer's context is full")
        return completion_of(reply)


class Host:
    """All episodes of one process."""

    def __init__(self, folder: Path, registry: Registry, send: Callable[[dict[str, Any]], None]) -> None:
        self._folder, self._registry, self._send = folder, registry, send
        self._players: dict[str, asyncio.Task[Player]] = {}
        self._talks: dict[int, Conversation] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._rollouts = folder / ROLLOUTS / f"{os.uname().nodename}-{os.getpid()}.jsonl"

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Until the trainer's worker is gone."""
        while line := await reader.readline():
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                _say(f"a message that cannot be read: {error}")
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for opened in self._players.values():
            with contextlib.suppress(Exception):
                await (await opened).close()

    def _take(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if "start" in message:
            self._talks[number] = Conversation(self._send, number)
            self._tasks[number] = asyncio.create_task(self._run(number, message["start"], message.get("step", 0)))
        elif "reply" in message:
            if number in self._talks:
                self._talks[number].answered(message["reply"])
        elif message.get("cancel") and number in self._tasks:
            self._tasks[number].cancel()

    async def _run(self, number: int, item: Any, step: int) -> None:
        try:
            said = await self._play(self._talks[number], item, step)
        except AtroposError as error:
            said = self._fatal(f"{error.message}; {error.hint}" if error.hint else error.message)
        except ValidationError as error:
            said = self._fatal(f"a task that is none: {error.errors()[0]['msg']}")
        except Exception as error:  # noqa: BLE001 - the trainer must hear of it
            said = {"failed": {"stage": "environment", "type": type(error).__name__, "message": redacted(str(error))}}
        finally:
            self._talks.pop(number, None)
            self._tasks.pop(number, None)
        self._send({"id": number, **said})

    async def _play(self, talk: Conversation, item: Any, step: int) -> dict[str, Any]:
        task, place = Task.model_validate(item["task"]), int(item["place"])
        player = await self._player(str(item["plan"]))
        failures: list[RolloutFailure] = []
        _asked.set(talk)
        found = await player.roll({place: task}, lambda at, of, failure, rollout: failures.append(failure))
        groups = found[place]
        if not groups:
            why = failures[-1] if failures else None
            return {"failed": {"stage": "environment", "type": "none", "message": ""} if why is None else _told(why)}
        if len(groups) > 1 or len(groups[0].rollouts) > 1:
            name = player.environment.name
            raise AtroposError(f"environment {name!r} makes groups of its own", hint="--trainer native trains on them")
        rollout = groups[0].rollouts[0]
        if rollout.reward is None:
            return {"failed": _told(rollout.failure) if rollout.failure else {"stage": "score", "message": "no reward"}}
        self._keep(groups[0], step, item)
        usage = {"turns": sum(message.role == "assistant" for message in rollout.messages)}
        about = {"reward": rollout.reward, "rewards": rollout.rewards, "metrics": rollout.metrics, **usage}
        return {"done": {**about, "stop_reason": rollout.stop_reason, "truncated": rollout.truncated}}

    def _keep(self, group: ScoredGroup, step: int, item: Any) -> None:
        row = {"plan": item["plan"], "step": step, "place": item["place"], "group": group.model_dump(mode="json")}
        self._rollouts.parent.mkdir(exist_ok=True)
        with self._rollouts.open("ab", buffering=0) as file:
            file.write(json.dumps(row).encode() + b"\n")

    async def _player(self, name: str) -> Player:
        if name not in self._players:
            self._players[name] = asyncio.create_task(self._open(name))
        return await asyncio.shield(self._players[name])

    async def _open(self, name: str) -> Player:
        stored = Plan.model_validate_json((self._folder / PLANS / f"{name}.json").read_bytes())
        # The trainer makes the groups, of rollouts that are played here one by one; it alone knows the tokens.
        changes = {"group_size": 1, "advantage": "none", "logprobs": "auto"}
        plan = stored.model_copy(update=changes)
        player = Player(plan, self._registry, lambda kind, text: _say(f"{kind}: {text}"))
        await player.open(TrainersModel(plan.model))
        return player

    def _fatal(self, text: str) -> dict[str, Any]:
        atomic_write(self._folder / FATAL, json.dumps({"message": redacted(text)}).encode())
        return {"fatal": redacted(text)}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _told(failure: RolloutFailure) -> dict[str, Any]:
    return {"stage": failure.stage, "type": failure.type, "message": failure.message}


async def _main(folder: Path, out: int) -> None:
    def send(message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        with contextlib.suppress(OSError):  # the other side is gone: its end is seen where it is read
            while data:
                data = data[os.write(out, data) :]

    reader = asyncio.StreamReader(limit=_LONGEST)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    await Host(folder, load_registry(), send).serve(reader)


def main(folder: str) -> None:
    """Serve until standard input ends. What libraries print goes to standard error."""
    out = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_main(Path(folder), out))


if __name__ == "__main__":
    main(sys.argv[1])
