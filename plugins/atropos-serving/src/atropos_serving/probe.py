"""What a running server gives: token ids, logprobs of the reply and of the prompt, tool calls."""

from __future__ import annotations

import http.client
import json
import os
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk.serving import Engine

KEYS: dict[Engine, str] = {"sglang": "SGLANG_API_KEY", "vllm": "VLLM_API_KEY"}
"""The variable with the key that a server wants from its clients: vLLM reads it, SGLang gets it from us."""
_TIMEOUT = 120.0
_PROMPT = "The capital of France is"
_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look around.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True)
class _Server:
    """Where to ask, and the key to ask with."""

    host: str
    port: int
    key: str


def probe(engine: Engine, host: str, port: int, tool_parser: str | None) -> dict[str, Any]:
    """The capabilities of one server. Unknown ones are None; nothing here raises. refused: why it said nothing.

    tool_parser: the one the server was started with.
    """
    variable = KEYS[engine]
    server = _Server(host, port, os.environ.get(variable, "").strip())
    status, models = _models(server)
    name = models[0]["id"] if models else None
    found: dict[str, Any] = {
        "version": _version(engine, server),
        "models": [str(item["id"]) for item in models],
        "context": models[0].get("max_model_len") if models else None,
        "tool_parser": tool_parser,
    }
    if status in (401, 403):
        found["refused"] = f"the server answers {status}: " + (
            f"the key that it was sent is that of {variable}" if server.key else f"{variable} is not set here"
        )
        return {**found, **dict.fromkeys(("logprobs", "token_ids", "prompt_logprobs", "tools"))}
    body = {"model": name, "prompt": _PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 1}
    status, data = _post(server, "/v1/completions", {**body, "return_token_ids": True})
    if status == 400:
        status, data = _post(server, "/v1/completions", body)
    choice = _choice(data) if status == 200 else {}
    found["logprobs"] = bool((choice.get("logprobs") or {}).get("token_logprobs")) if choice else None
    found["token_ids"] = bool(choice.get("token_ids")) if choice else None
    found["prompt_logprobs"] = _prompt_logprobs(engine, server, name)
    chat = {"model": name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "tools": [_TOOL]}
    status, _ = _post(server, "/v1/chat/completions", chat)
    found["tools"] = None if not status else status == 200 and tool_parser is not None
    if engine == "sglang" and found["token_ids"] is False:
        status, data = _post(
            server, "/generate", {"text": _PROMPT, "sampling_params": {"max_new_tokens": 1}, "return_logprob": True}
        )
        found["token_ids"] = status == 200 and isinstance(data, dict) and "output_ids" in data
    return found


def tinker_models(host: str, port: int) -> dict[str, Any]:
    """The models of a server of the Tinker API."""
    status, data = _ask(_Server(host, port, ""), "GET", "/api/v1/get_server_capabilities")
    items = data.get("supported_models") if status == 200 and isinstance(data, dict) else None
    return {"models": [str(item.get("model_name")) for item in items or () if isinstance(item, dict)]}


def _prompt_logprobs(engine: Engine, server: _Server, name: str | None) -> bool | None:
    if engine == "vllm":
        body = {"model": name, "prompt": _PROMPT, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        status, data = _post(server, "/v1/completions", body)
        return bool(_choice(data).get("prompt_logprobs")) if status == 200 else False if status else None
    asked = {"text": _PROMPT, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    status, data = _post(server, "/generate", {**asked, "return_logprob": True, "logprob_start_len": 0})
    meta = data.get("meta_info") if isinstance(data, dict) else None
    if status == 200 and isinstance(meta, dict):
        return bool(meta.get("input_token_logprobs"))
    return False if status else None


def _models(server: _Server) -> tuple[int, list[dict[str, Any]]]:
    status, data = _ask(server, "GET", "/v1/models")
    items = data.get("data") if status == 200 and isinstance(data, dict) else None
    return status, [item for item in items or () if isinstance(item, dict) and isinstance(item.get("id"), str)]


def _version(engine: Engine, server: _Server) -> str | None:
    status, data = _ask(server, "GET", "/version" if engine == "vllm" else "/server_info")
    version = data.get("version") if status == 200 and isinstance(data, dict) else None
    return str(version) if version else None


def _choice(data: Any) -> dict[str, Any]:
    choices = data.get("choices") if isinstance(data, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _post(server: _Server, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    return _ask(server, "POST", path, body)


def _ask(server: _Server, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """(status, JSON); (0, None) when there is no answer. No proxy is used."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=_TIMEOUT)
    try:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        headers |= {"Authorization": f"Bearer {server.key}"} if server.key else {}
        connection.request(method, path, body=data, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read(1 << 24))
    except ValueError:
        return answer.status, None
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
