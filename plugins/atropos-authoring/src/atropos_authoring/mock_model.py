"""What a healthy model server answers, in the shapes of several kinds: the part of MockServer without sockets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from atropos_cli.sdk.backends import encode_prompt, encode_reply, token_logprobs

Flavor = Literal["openai", "strict", "vllm", "sglang"]
GENERATION_PATHS = ("/chat/completions", "/completions", "/generate")
_OPTIONAL_FIELDS = ("return_token_ids", "logprobs", "top_k", "min_p", "prompt_logprobs", "echo")


@dataclass(slots=True)
class MockModel:
    """A model that always answers `reply`. All fields may be changed while it is served.

    reply: the content of each choice, or a function (request body, index of the choice) -> the content
        or a whole message dict. flavor: see mock_server. honours_n: False answers one choice, whatever n
        says. weight_updates: the flavor's paths for new weights exist; `weights` holds the folders that were taken.
    """

    flavor: Flavor = "openai"
    names: tuple[str, ...] = ("mock-model",)
    reply: str | Callable[[dict[str, Any], int], Any] = "ok"
    honours_n: bool = True
    api_key: str | None = None
    weight_updates: bool = False
    weights: list[str] = field(default_factory=list)
    _encoded: dict[tuple[Any, ...], bytes] = field(default_factory=dict)

    def answer_bytes(self, path: str, headers: dict[str, str], data: bytes) -> tuple[int, bytes]:
        """The answer to a request, as JSON; a constant one is encoded once, so that benchmarks measure the client."""
        constant = isinstance(self.reply, str) and path.endswith("/completions") and self.api_key is None
        if not constant:
            status, answer = self.answer(path, headers, data)
            return status, json.dumps(answer).encode()
        key = (path, self.flavor, self.reply, self.honours_n, self.names, data)
        body = self._encoded.get(key)
        if body is None:
            status, answer = self.answer(path, headers, data)
            body = json.dumps(answer).encode()
            if status != 200:
                return status, body
            if len(self._encoded) < 4096:
                self._encoded[key] = body
        return 200, body

    def answer(self, path: str, headers: dict[str, str], data: bytes) -> tuple[int, Any]:
        """Status and JSON of a healthy server."""
        if self.api_key is not None and headers.get("authorization") != f"Bearer {self.api_key}":
            return 401, {"error": {"message": "Unauthorized", "type": "invalid_request_error"}}
        if path.endswith(("/health", "/ready")):
            return 200, {}
        if path.endswith("/v1/models"):
            owner = self.flavor if self.flavor in ("vllm", "sglang") else "mock"
            return 200, {
                "object": "list",
                "data": [{"id": m, "object": "model", "owned_by": owner} for m in self.names],
            }
        if path.endswith("/version") and self.flavor == "vllm":
            return 200, {"version": "0.0-mock"}
        if path.endswith("/tokenize") and self.flavor in ("vllm", "sglang"):
            tokens = list(json.loads(data)["prompt"].encode("utf-8", "surrogatepass"))
            return 200, {"tokens": tokens, "count": len(tokens), "max_model_len": 32768}
        if self.weight_updates and (changed := self._change_weights(path, data)) is not None:
            return changed
        if not path.endswith(GENERATION_PATHS) or (path.endswith("/generate") and self.flavor != "sglang"):
            return 404, {"detail": "Not Found"}
        body = json.loads(data)
        if self.flavor == "strict":
            for name in _OPTIONAL_FIELDS:
                if name in body:
                    return 400, {"error": {"message": f"Unrecognized request argument supplied: {name}", "code": None}}
        if path.endswith("/generate"):
            return 200, self._native_score(body)
        if body.get("model") not in self.names:
            message = f"The model `{body.get('model')}` does not exist."
            return 404, {"error": {"message": message, "type": "NotFoundError", "param": "model", "code": 404}}
        return 200, self.generation(body, chat=path.endswith("/chat/completions"))

    def _change_weights(self, path: str, data: bytes) -> tuple[int, Any] | None:
        """The answers of vLLM's and SGLang's paths for new weights; None for any other path."""
        path = path.partition("?")[0]
        if self.flavor == "vllm" and path in ("/pause", "/resume", "/reset_prefix_cache"):
            return 200, {}
        if self.flavor == "vllm" and path == "/collective_rpc":
            self.weights.append(json.loads(data)["kwargs"]["weights_path"])
            return 200, {"results": [None]}
        if self.flavor == "sglang" and path == "/update_weights_from_disk":
            self.weights.append(json.loads(data)["model_path"])
            return 200, {"success": True, "message": "Succeeded", "num_paused_requests": 0}
        if self.flavor in ("vllm", "sglang") and path.endswith("/load_lora_adapter"):
            body = json.loads(data)
            if body["lora_name"] in self.names and not body.get("load_inplace"):
                return 400, {"error": {"message": f"{body['lora_name']} is loaded already", "code": 400}}
            self.weights.append(body["lora_path"])
            self.names = tuple(dict.fromkeys((*self.names, body["lora_name"])))
            return 200, {"success": True}
        if self.flavor == "sglang" and path == "/unload_lora_adapter":
            name = json.loads(data)["lora_name"]
            self.names = tuple(known for known in self.names if known != name)
            return 200, {"success": True}
        return None

    def generation(self, body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
        """The ordinary answer to a generation request, in this flavor's shape."""
        n = int(body.get("n") or 1) if self.honours_n else 1
        prompt_ids = _prompt_ids(body, chat)
        knows_ids = self.flavor in ("vllm", "sglang")
        with_ids = knows_ids and bool(body.get("return_token_ids"))
        choices = []
        total = 0
        for index in range(n):
            reply = self.reply(body, index) if callable(self.reply) else self.reply
            message = reply if isinstance(reply, dict) else {"role": "assistant", "content": reply}
            text = message.get("content") or ""
            ids = encode_reply(text)
            total += len(ids)
            choice: dict[str, Any] = {"index": index, "finish_reason": "stop", "logprobs": None}
            choice |= {"message": message} if chat else {"text": text}
            wanted = body.get("logprobs")
            if knows_ids and wanted is not None and wanted is not False:
                choice["logprobs"] = _chat_logprobs(ids) if chat else _completion_logprobs(ids)
            if with_ids:
                # Not the same name in chat answers: response_token_ids there, in SGLang 0.5.
                choice["response_token_ids" if chat and self.flavor == "sglang" else "token_ids"] = ids
                if self.flavor == "sglang" or not chat:
                    choice["prompt_token_ids"] = prompt_ids
            if self.flavor == "vllm" and not chat and body.get("prompt_logprobs") is not None:
                values = token_logprobs(prompt_ids)
                choice["prompt_logprobs"] = [None] + [
                    {str(token): {"logprob": value, "rank": 1}}
                    for token, value in zip(prompt_ids[1:], values[1:], strict=True)
                ]
            choices.append(choice)
        answer: dict[str, Any] = {
            "id": "mock",
            "object": "chat.completion" if chat else "text_completion",
            "model": body.get("model"),
            "choices": choices,
            "usage": {
                "prompt_tokens": len(prompt_ids),
                "completion_tokens": total,
                "total_tokens": len(prompt_ids) + total,
            },
        }
        if with_ids and chat and self.flavor == "vllm":
            answer["prompt_token_ids"] = prompt_ids
        return answer

    def _native_score(self, body: dict[str, Any]) -> dict[str, Any]:
        """SGLang's own /generate, as far as scoring needs it."""
        ids = body["input_ids"]
        start = body.get("logprob_start_len", -1)
        values = list(zip(token_logprobs(ids), ids, itertools.repeat(None), strict=False))[start:]
        entries: list[Any] = [list(entry) for entry in values]
        if entries:
            entries[0][0] = None
        return {"text": "", "meta_info": {"prompt_tokens": len(ids), "input_token_logprobs": entries}}


def _prompt_ids(body: dict[str, Any], chat: bool) -> Sequence[int]:
    if chat:
        return encode_prompt([(message.get("role", "user"), _text(message)) for message in body["messages"]])
    prompt = body["prompt"]
    return prompt if isinstance(prompt, list) else tuple(prompt.encode())


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part.get("text", "") for part in content)
    return content or ""


def _token_text(token: int) -> str:
    return bytes([token]).decode("latin-1") if token < 256 else "<end>"


def _chat_logprobs(ids: Sequence[int]) -> dict[str, Any]:
    return {
        "content": [
            {"token": _token_text(token), "logprob": value, "bytes": [token % 256], "top_logprobs": []}
            for token, value in zip(ids, token_logprobs(ids), strict=True)
        ]
    }


def _completion_logprobs(ids: Sequence[int]) -> dict[str, Any]:
    return {
        "tokens": [_token_text(token) for token in ids],
        "token_logprobs": token_logprobs(ids),
        "text_offset": list(range(len(ids))),
        "top_logprobs": None,
    }
