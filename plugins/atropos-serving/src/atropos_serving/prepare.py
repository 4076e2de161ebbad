"""What must be there before a server is started: the model, a free port."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atropos_cli.sdk import ConfigError, UsageError
from atropos_cli.sdk.launchers import LaunchError
from atropos_cli.sdk.serving import get
from atropos_serving.diagnose import listening, port_owner
from atropos_serving.modelinfo import ModelInfo, find_model, hub_cache, model_info, read_model

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_TIMEOUT = 5.0


def look_up(model: str, *, offline: bool, ask_hub: bool) -> ModelInfo | None:
    """The known facts about a model; None without any. ask_hub: read its config.json there when it is not here.

    Raises UsageError for a name that is neither a folder nor a hub name, LaunchError when it is not here and offline.
    """
    folder = find_model(model)
    if folder is not None:
        return read_model(folder, model)
    path = Path(model).expanduser()
    if path.is_dir():
        raise LaunchError(
            f"{model} holds no config.json, so it is not a model", hint="give the folder with config.json"
        )
    if path.is_file() and path.suffix == ".gguf":
        return None
    if not _HUB_NAME.fullmatch(model):
        raise UsageError(f"there is no folder {model}", hint="MODEL is a folder, or OWNER/NAME of the hub")
    if offline:
        raise LaunchError(
            f"model {model!r} is not on this machine ({hub_cache()}), and offline mode is on",
            hint=f"where there is a network: atropos prefetch --model {model}",
        )
    return model_info(config, model) if ask_hub and (config := _hub_config(model)) is not None else None


def _hub_config(model: str, environ: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """config.json of a model of the hub; None when it cannot be had at once."""
    env = os.environ if environ is None else environ
    endpoint = env.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    headers = {"Authorization": f"Bearer {env['HF_TOKEN']}"} if env.get("HF_TOKEN") else {}
    try:
        answer = get(f"{endpoint}/{model}/resolve/main/config.json", headers=headers, timeout=_TIMEOUT, redirects=True)
        found = answer.json() if answer.status_code == 200 else None
    except (OSError, ValueError, ConfigError):
        return None
    return found if isinstance(found, dict) else None


def check_ports(first: int | None, servers: int) -> None:
    """Raise LaunchError when one of the ports is taken; says by whom where that can be seen."""
    for port in range(first, first + servers) if first is not None else ():
        if port > 65535:
            raise UsageError(f"--port {first} and {servers} servers: port {port} does not exist")
        if listening(port):
            owner = port_owner(port)
            raise LaunchError(
                f"port {port} is taken" + (f" by {owner}" if owner else " by another user's process"),
                hint="another --port, or leave it out: a free one is picked",
            )
