"""New weights for running servers: from a folder that the server can read, or a LoRA adapter's folder.

    vLLM     /pause, /collective_rpc reload_weights, /reset_prefix_cache, /resume   (VLLM_SERVER_DEV_MODE=1)
             /v1/load_lora_adapter                            (--enable-lora, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)
    SGLang   /update_weights_from_disk, /load_lora_adapter                          (--enable-lora for the latter)

No server keeps old and new weights apart by itself, so nothing may be in flight: the caller sees to that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_cli.builtin.openai.answer import read_json
from atropos_cli.builtin.openai.request import encode
from atropos_cli.builtin.openai.servers import Server
from atropos_cli.sdk import JsonDict
from atropos_cli.sdk.backends import FatalBackendError

ADAPTER_FILE = "adapter_config.json"
_DEV_HINT = "start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment, on a network that only you reach"
_LORA_HINT = "start the server with --enable-lora (vLLM also wants VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)"


class WeightUpdater:
    """Gives all servers of a backend the same weights; `model` is the name to ask for from then on."""

    def __init__(self, servers: Sequence[Server], model: str, timeout: float) -> None:
        self.model = model
        self._servers = servers
        self._base = model
        self._timeout = timeout
        self._loaded: set[tuple[int, str]] = set()

    async def update(self, source: str, version: int, *, loaded: bool = False) -> None:
        """Returns when every server samples from the new weights. Raises FatalBackendError when one does not.

        loaded: they do already, through another process.
        """
        adapter = (Path(source) / ADAPTER_FILE).is_file()
        if not adapter and not (Path(source) / "config.json").is_file():
            # vLLM drops its weights before it looks for new ones, and dies at the next request.
            raise FatalBackendError(f"{source!r} holds no model", hint="give a folder written by save_pretrained")
        if not loaded:
            await asyncio.gather(*(self._one(server, source, version, adapter=adapter) for server in self._servers))
        self.model = self._adapter_name() if adapter else self._base

    def _adapter_name(self) -> str:
        return f"{self._base}-policy"

    async def _one(self, server: Server, source: str, version: int, *, adapter: bool) -> None:
        if server.kind == "vllm":
            await (self._vllm_adapter(server, source) if adapter else self._vllm(server, source))
        elif server.kind == "sglang":
            await (self._sglang_adapter(server, source) if adapter else self._sglang(server, source, version))
        else:
            raise FatalBackendError(
                f"{server.address} ({server.kind}) has no known way to take new weights",
                hint="serve the model with vLLM or SGLang, or sample in process: leave out --base-url",
            )

    async def _vllm(self, server: Server, source: str) -> None:
        """Requests that run stop where they are, and are computed again up to there."""
        await self._post(server, "/pause?mode=keep", {}, _DEV_HINT)
        try:
            call: JsonDict = {"method": "reload_weights", "kwargs": {"weights_path": source}}
            await self._post(server, "/collective_rpc", call, _DEV_HINT)
            await self._post(server, "/reset_prefix_cache?reset_running_requests=true", {}, _DEV_HINT)
        finally:
            await self._post(server, "/resume", {}, _DEV_HINT)

    async def _vllm_adapter(self, server: Server, source: str) -> None:
        name = self._adapter_name()
        body: JsonDict = {"lora_name": name, "lora_path": source}
        if self._seen(server, name):
            body["load_inplace"] = True  # a second load of the name is refused without it
        await self._post(server, "/v1/load_lora_adapter", body, _LORA_HINT)
        self._loaded.add((id(server), name))

    async def _sglang(self, server: Server, source: str, version: int) -> None:
        body: JsonDict = {"model_path": source, "flush_cache": True, "weight_version": str(version)}
        await self._post(server, "/update_weights_from_disk", body, None)

    async def _sglang_adapter(self, server: Server, source: str) -> None:
        name = self._adapter_name()
        if self._seen(server, name):
            await self._post(server, "/unload_lora_adapter", {"lora_name": name}, _LORA_HINT)
        await self._post(server, "/load_lora_adapter", {"lora_name": name, "lora_path": source}, _LORA_HINT)
        self._loaded.add((id(server), name))

    def _seen(self, server: Server, name: str) -> bool:
        return (id(server), name) in self._loaded

    async def _post(self, server: Server, path: str, body: JsonDict, hint: str | None) -> None:
        response = await server.post_root(path, encode(body), self._timeout)
        if response.status in (404, 405):
            raise FatalBackendError(f"{server.address} does not take new weights ({path} is not there)", hint=hint)
        if response.status != 200:
            error = server.error(response, server.asked(self._base, path, endpoint="completions"))
            raise FatalBackendError(f"{server.address} did not take the new weights ({path}): {error}", hint=hint)
        if (said := _refusal(response.body)) is not None:
            raise FatalBackendError(f"{server.address} did not take the new weights: {said}", hint=hint)


def _refusal(body: bytes) -> str | None:
    """What a 200 answer says when it means no; some answers are plain text, which does not mean a refusal."""
    try:
        data: Any = read_json(body)
    except ValueError:
        return None
    if isinstance(data, dict) and data.get("success") is False:
        return str(data.get("message") or "no reason given")
    return None
