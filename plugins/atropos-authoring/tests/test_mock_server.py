"""The mock server itself: its script, its bookkeeping, and that it serves synchronous callers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from atropos_authoring.mock_server import MockServer

BODY = {"model": "mock-model", "messages": [{"role": "user", "content": "hi"}]}


def post(server: MockServer, path: str = "/v1/chat/completions", body: Any = BODY) -> tuple[int, Any, dict[str, str]]:
    request = Request(server.root + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=10) as response:
            return response.status, json.load(response), dict(response.headers)
    except HTTPError as error:
        return error.code, json.loads(error.read() or b"null"), dict(error.headers)


def contents(answer: Any) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_ordinary_answers() -> None:
    with MockServer(reply=lambda body, index: f"{body['messages'][0]['content']} {index}") as server:
        status, answer, _ = post(server, body={**BODY, "n": 2})
        assert status == 200
        assert contents(answer) == ["hi 0", "hi 1"]
        assert post(server, body={**BODY, "model": "other"})[0] == 404
        assert post(server, "/v1/embeddings")[0] == 404
        with urlopen(f"{server.root}/health", timeout=10) as response:
            assert response.status == 200
    assert [request.path for request in server.generations] == ["/v1/chat/completions"] * 2


def test_a_script_is_followed_and_its_last_entry_stays() -> None:
    script = [
        {"status": 429, "headers": {"Retry-After": "3"}, "json": {"error": "slow"}, "times": 2},
        {"reply": "a"},
        {"reply": "b"},
    ]
    with MockServer(script) as server:
        results = [post(server) for _ in range(5)]
    assert [status for status, _, _ in results] == [429, 429, 200, 200, 200]
    assert results[0][2]["Retry-After"] == "3"
    assert [contents(answer) for _, answer, _ in results[2:]] == [["a"], ["b"], ["b"]]


def test_a_script_at_its_end_says_so() -> None:
    with MockServer([{"reply": "a", "times": 1}]) as server:
        assert post(server)[0] == 200
        status, answer, _ = post(server)
    assert status == 500
    assert "at its end" in answer["error"]["message"]


def test_honours_n_false() -> None:
    with MockServer(honours_n=False) as server:
        assert len(post(server, body={**BODY, "n": 4})[1]["choices"]) == 1


def test_in_flight_is_counted_and_a_hanging_client_that_leaves_is_forgotten() -> None:
    with MockServer(delay=0.1) as server:
        threads = [threading.Thread(target=post, args=(server,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.max_in_flight == 4
        assert server.in_flight == 0
        server.delay = 0.0
        server.script([{"action": "hang"}])
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            wait_until(lambda: server.in_flight == 1)
        wait_until(lambda: server.in_flight == 0)


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


def test_it_can_die_and_come_back_on_the_same_port() -> None:
    server = MockServer().start()
    port = server.port
    server.stop()
    server.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    with server:
        assert server.port == port
        assert post(server)[0] == 200
        with pytest.raises(OSError, match="in use"):
            MockServer(port=port).start()


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="honors_n"):
        MockServer(honors_n=False)


def test_as_a_process() -> None:
    command = [sys.executable, "-m", "atropos_authoring.mock_server", "--port", "0", "--reply", "from a process"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            request = Request(f"{url}/chat/completions", json.dumps(BODY).encode())
            with urlopen(request, timeout=10) as response:
                assert contents(json.load(response)) == ["from a process"]
        finally:
            process.terminate()
