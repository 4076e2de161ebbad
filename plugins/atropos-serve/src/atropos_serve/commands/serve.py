"""`atropos serve`: the trajectory server."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import socket
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from atropos_cli.sdk import ConfigError, SecretStr, UsageError
from atropos_cli.sdk.commands import CommandOptions, Session, data_stream, end, option, with_flags

if TYPE_CHECKING:
    from uvicorn import Server

    from atropos_serve.exchange import Exchange
    from atropos_serve.gate import Rules

QUEUE, ACCESS = "Queue", "Access"


class ServeOptions(CommandOptions):
    """Where the server listens, and how long it waits for whom."""

    port: int = option(8000, "0: a free one.", ge=0, le=65535)
    host: str = option("127.0.0.1", "Where to listen; this machine only by default.", metavar="ADDRESS")
    max_queue: int = option(100_000, "Groups; a full queue makes environments wait.", panel=QUEUE, ge=1)
    env_timeout: float = option(
        60.0, "An environment that is silent for longer counts as dead.", panel=QUEUE, metavar="SECONDS", gt=0
    )
    allocation_timeout: float = option(
        300.0,
        "How long a batch waits for the minimum of a living environment that sends nothing.",
        panel=QUEUE,
        metavar="SECONDS",
        gt=0,
    )
    sync: bool = option(False, "Groups survive a power failure, too: slower by a disk write each.", panel=QUEUE)
    reset: bool = option(True, "--no-reset: clients cannot empty the queue (GET /reset_data).", panel=ACCESS)
    token: SecretStr | None = option(None, "Clients must send it: Authorization: Bearer TOKEN.", panel=ACCESS)
    max_body: int = option(256, "Largest request, decompressed.", panel=ACCESS, metavar="MB", ge=1, le=4096)
    log_requests: bool = option(False, "Print a line for each request on standard error.", panel=ACCESS)


@with_flags("serve", ServeOptions)
def serve(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the queue is kept; an existing one is continued.")
    ] = Path("trajectories"),
    *,
    options: ServeOptions,
    session: Session,
) -> None:
    """Collect scored groups from environments and hand them to trainers in batches.

    The address is printed on standard output. Environments and trainers of atroposlib work with it unchanged; so does
    gen --to. The queue is on disk: a server that was killed continues where it was. /live shows it in the browser.
    """
    from atropos_serve.exchange import Exchange, Limits
    from atropos_serve.gate import LOOPBACK_NAMES, Rules
    from atropos_serve.store import Store

    local = options.host in LOOPBACK_NAMES
    token = None if options.token is None else options.token.get_secret_value()
    if token is not None and not (token.strip() == token != "" and token.isascii() and token.isprintable()):
        raise ConfigError(
            "the token is empty, or has a line break, a blank at an end or a letter beyond ASCII: none can send it",
            hint="give ATROPOS_SERVE__TOKEN ASCII letters and digits, or unset it",
        )
    if not local and token is None:
        session.out.warning(
            f"{options.host} can be reached from other machines, which can then read and fill the queue",
            "a token keeps others out: ATROPOS_SERVE__TOKEN",
        )
    sockets = listen(options.host, options.port)
    store = Store(folder, sync=options.sync)
    limits = Limits(options.env_timeout, options.allocation_timeout, options.max_queue)
    exchange = Exchange(store, limits)
    log = _print_line if options.log_requests else None
    rules = Rules(token=token, local=local, max_body=options.max_body * 2**20, log=log)
    server = _server(exchange, rules, reset=options.reset)
    address = url(options.host, sockets[0])
    session.out.data(address)
    data_stream().flush()  # whoever reads the address from a pipe waits for it
    end(session.out, f"serving {folder}; Ctrl-C ends it", f"open {address}/live in a browser")
    try:
        _run(server, sockets)
    finally:
        exchange.close()
    session.out.note("ended; the queue is kept")


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets of an address, before anything else starts. Raises UsageError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2048)
        made.set_inheritable(False)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host} port {port}: {reason}", hint="--port 0 takes a free one") from error
    return [made]


def url(host: str, made: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{made.getsockname()[1]}"


def _print_line(text: str) -> None:
    import sys

    sys.stderr.write(f"{text}\n")


def _server(exchange: Exchange, rules: Rules, *, reset: bool) -> Server:
    import uvicorn

    from atropos_serve.app import make_app

    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        make_app(exchange, rules, allow_reset=reset),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=5,
    )
    config.load()
    return uvicorn.Server(config)


def _run(server: Server, sockets: list[socket.socket]) -> None:
    """Until SIGINT or SIGTERM; both end it well."""
    # Thousands of lists a request start the collector often; what was made until here is never garbage.
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
    before = signal.signal(signal.SIGTERM, _ignore)  # uvicorn raises it again when it has ended
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=sockets)
    finally:
        signal.signal(signal.SIGTERM, before)


def _ignore(number: int, frame: FrameType | None) -> None:
    """The server has ended because of this signal already."""
