"""`atropos serve-env ENV`: an environment of ours for OpenEnv's clients."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.commands import (
    ChosenEnvironment,
    CommandOptions,
    ConfigOption,
    EnvironmentCommands,
    data_stream,
    end,
    option,
)
from atropos_cli.sdk.engine import Hosted, LoopThread
from atropos_openenv.server import LOOPBACK, EnvServer

_CLOSING_S = 5.0


class ServeEnvOptions(CommandOptions):
    """Where the server listens, and how many may play at once."""

    port: int = option(8000, "0: a free one.", ge=0, le=65535)
    host: str = option("127.0.0.1", "Where to listen; this machine only by default.", metavar="ADDRESS")
    sessions: int = option(64, "Episodes at the same time; more clients are refused with CAPACITY_REACHED.", ge=1)
    idle_s: float = option(3600.0, "Seconds without a message after which a session is closed.", gt=0)
    split: str | None = option(None, "Split of the tasks; default: the first one.")
    seed: int = option(0, "Seed given to open().")


def serve_env(chosen: ChosenEnvironment, *, options: ServeEnvOptions, config: ConfigOption = None) -> None:
    """Serve an environment to OpenEnv's clients until Ctrl-C."""
    host = Hosted(chosen.given_name, chosen.options, chosen.session.registry, split=options.split, seed=options.seed)
    local = options.host in LOOPBACK
    if not local:
        chosen.session.out.warning(
            f"{options.host} can be reached from other machines, which can then play",
            "there are no passwords: keep it in a network that you trust",
        )
    server = EnvServer(host, most=options.sessions, idle_s=options.idle_s, local=local)
    listening = _listen(options.host, options.port)
    shown = f"[{options.host}]" if ":" in options.host else options.host
    address = f"http://{shown}:{listening.getsockname()[1]}"

    def ready() -> None:
        chosen.session.out.data(address)
        data_stream().flush()  # whoever reads the address from a pipe waits for it
        end(chosen.session.out, f"serving {host.name}; Ctrl-C ends it", f"atropos gen openenv:{address}")

    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        LoopThread().call_unless(stop.is_set, _serve(server, listening, ready))
    finally:
        listening.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    chosen.session.out.note("ended")


async def _serve(server: EnvServer, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Until it is cancelled."""
    from aiohttp import web

    runner: web.AppRunner | None = None
    try:
        await server.open()
        runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=_CLOSING_S)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        ready()
        await asyncio.Event().wait()
    finally:
        await server.close()
        if runner is not None:
            await runner.cleanup()


def _listen(host: str, port: int) -> socket.socket:
    """A socket of the address, before anything else starts. Raises UsageError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(512)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host} port {port}: {reason}", hint="--port 0 takes a free one") from error
    return made


command = EnvironmentCommands("serve-env", ServeEnvOptions, serve_env, "Serve an environment to OpenEnv's clients.")
