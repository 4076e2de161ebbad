"""A stand-in for a provider: speaks OpenAI's and Anthropic's API on 127.0.0.1, and misbehaves on demand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CALL = {"name": "look", "arguments": '{"at": "map"}'}


class Provider:
    """With `with`. failure: (status, body, headers) of the next answers, None for ordinary ones."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.failure: tuple[int, Any, dict[str, str]] | None = None
        self.tool_call = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, answer, headers = outer.failure or (200, outer.answer(self.path, body), {})
                data = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"content-type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: Any) -> Any:
        return self._anthropic(body) if path.endswith("/messages") else self._openai(body)

    def _openai(self, body: Any) -> Any:
        said = {"role": "assistant", "content": "hello"}
        if self.tool_call:
            said = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": CALL}],
            }
        n = body.get("n") or 1
        return {
            "id": "x", "object": "chat.completion", "created": 1, "model": body["model"],
            "choices": [{"index": i, "finish_reason": "stop", "message": said} for i in range(n)],
            "usage": {
                "prompt_tokens": 100, "completion_tokens": 10 * n, "total_tokens": 100 + 10 * n,
                "prompt_tokens_details": {"cached_tokens": 40}, "completion_tokens_details": {"reasoning_tokens": 6},
            },
        }  # fmt: skip

    def _anthropic(self, body: Any) -> Any:
        content: list[Any] = [{"type": "text", "text": "bonjour"}]
        if self.tool_call:
            content = [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "map"}}]
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": content,
            "stop_reason": "tool_use" if self.tool_call else "max_tokens", "stop_sequence": None,
            "usage": {"input_tokens": 60, "output_tokens": 5, "cache_read_input_tokens": 40},
        }  # fmt: skip
