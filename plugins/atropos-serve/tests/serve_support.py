"""Groups, registrations and an exchange in a folder, for the tests of the server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
from atropos_serve.exchange import Batch, Exchange, Limits
from atropos_serve.store import Store
from atropos_serve.wire import Group, RegisterEnv, Registration, read_group

REGISTRATION = {
    "wandb_group": "g",
    "wandb_project": "p",
    "batch_size": 16,
    "max_token_len": 128,
    "checkpoint_dir": "c",
    "save_checkpoint_interval": 10,
    "starting_step": 0,
    "num_steps": 5,
}


class Clock:
    """A time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def payload(size: int, tag: int = 1, env: int | None = None, **more: Any) -> dict[str, Any]:
    """A group whose first token is its tag."""
    return {
        "tokens": [[tag, place] for place in range(size)],
        "masks": [[-100, place] for place in range(size)],
        "scores": [float(place) for place in range(size)],
        **({} if env is None else {"env_id": env}),
        **more,
    }


def group(size: int, tag: int = 1, env: int | None = None, **more: Any) -> Group:
    return read_group(orjson.dumps(payload(size, tag, env, **more)))


def registration(**changes: Any) -> Registration:
    return Registration.model_validate({**REGISTRATION, **changes})


def env(size: int = 8, **changes: Any) -> RegisterEnv:
    return RegisterEnv.model_validate(
        {"max_token_length": 64, "desired_name": "e", "weight": 1.0, "group_size": size, **changes}
    )


def opened(folder: Path, clock: Clock | None = None, **limits: Any) -> Exchange:
    return Exchange(Store(folder), Limits(**limits), clock or Clock())


def started(folder: Path, *sizes: int, clock: Clock | None = None, batch_size: int = 16, **limits: Any) -> Exchange:
    """A trainer has asked for a batch, and an environment of each size has registered."""
    exchange = opened(folder, clock, **limits)
    exchange.register(registration(batch_size=batch_size))
    assert exchange.next_batch() is None
    for size in sizes:
        assert exchange.register_env(env(size)) is not None
    return exchange


def tags(batch: Batch | None) -> list[int] | None:
    """The tags of a batch's groups, in order."""
    if batch is None:
        return None
    return [orjson.loads(one.body or b"")["tokens"][0][0] for one in batch.groups]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """`atropos serve` as a process of its own, ready when this returns."""

    def __init__(self, folder: Path, port: int = 0, *words: str, variables: dict[str, str] | None = None) -> None:
        self.errors = folder.with_suffix(".stderr")
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "atropos_cli", "serve", str(folder), "--port", str(port), *words],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **(variables or {})},
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.errors.read_text()

    def stop(self) -> int:
        self.process.terminate()
        return self._ended()

    def kill(self) -> None:
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=60)
