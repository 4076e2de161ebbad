"""Is a service ready, and does it stay alive?

Ready: its endpoint published, its health path answered with 200, one warm-up request answered. From then on, where
the component says what a dead one answers, its health is asked again and again: vLLM's API server outlives its engine
by many seconds, in which clients only wait.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from typing import Any

from atropos_cli.domain.job import Component
from atropos_cli.jobs.folder import JobFolder

_EVERY = 0.5
_HEALTH_TIMEOUT = 30.0
_WATCH_EVERY = 1.5
_WATCH_TIMEOUT = 5.0
_DEAD_AFTER = 2
"""Answers in a row; one alone may be a server that is just being stopped."""
_REFUSED = range(400, 500)


def ask(endpoint: dict[str, Any], path: str, *, body: Any = None, timeout: float, key: str = "") -> tuple[int, str]:
    """(status, first part of the answer) of a GET, or a POST of `body`. Raises OSError or HTTPException.

    No proxy is ever used: it is a server of our own job.
    """
    host, port = endpoint["host"], next(iter(endpoint["ports"].values()))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        data = None if body is None else json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"} if data else {}
        connection.request("GET" if data is None else "POST", path, body=data, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(2000).decode(errors="replace")
    finally:
        connection.close()


def healthy(service: Component, endpoint: dict[str, Any] | None, timeout: float = 5.0) -> bool:
    """Does the service answer its health path with 200 now? One without a health path is healthy while it runs."""
    if service.health is None:
        return True
    return endpoint is not None and _health(service.health, endpoint, timeout) == 200


def _health(path: str, endpoint: dict[str, Any], timeout: float) -> int | None:
    """The status of a health check; None when nothing came."""
    try:
        return ask(endpoint, path, timeout=timeout)[0]
    except (OSError, http.client.HTTPException):
        return None


class Readiness(threading.Thread):
    """Waits in the background until a service is ready (the first request may take minutes), then watches it.

    problem: why it cannot work. dead: it had been ready, and will not answer a polite stop.
    """

    def __init__(self, service: Component, folder: JobFolder, timeout: float) -> None:
        super().__init__(name=f"ready-{service.name}", daemon=True)
        self.service = service
        self.problem: str | None = None
        self.dead = False
        self.waits_for = "its endpoint"
        self._folder = folder
        self._timeout = timeout
        self._done = threading.Event()
        self._cancelled = threading.Event()

    @property
    def ready(self) -> bool:
        return self._done.is_set()

    def cancel(self) -> None:
        self._cancelled.set()

    def run(self) -> None:
        endpoint = None
        while not self._cancelled.is_set() and endpoint is None:
            endpoint = self._folder.endpoint(self.service.name)
            if endpoint is None:
                self._cancelled.wait(0.1)
        if endpoint is None:
            return
        self.waits_for = f"GET {self.service.health} to answer with 200"
        while not healthy(self.service, endpoint, _HEALTH_TIMEOUT):
            if self._cancelled.wait(_EVERY):
                return
        if self.service.warmup is None or self._warm_up(endpoint):
            self._done.set()
            self._watch(endpoint)

    def _watch(self, endpoint: dict[str, Any]) -> None:
        path, dead = self.service.health, self.service.dead_status
        if path is None or dead is None:
            return
        count = 0
        while count < _DEAD_AFTER:
            if self._cancelled.wait(_WATCH_EVERY):
                return
            status = _health(path, endpoint, _WATCH_TIMEOUT)
            if status is not None:  # busy or ending: its end is seen by others
                count = count + 1 if status == dead else 0
        self.dead = True
        self.problem = f"the engine of {self.service.name} has died (GET {path} answers {dead})"

    def _warm_up(self, endpoint: dict[str, Any]) -> bool:
        warmup = self.service.warmup
        assert warmup is not None
        self.waits_for = f"the warm-up request POST {warmup.path}"
        variable = self.service.key_env
        key = os.environ.get(variable, "").strip() if variable else ""
        deadline = time.monotonic() + self._timeout
        while not self._cancelled.is_set():
            left = max(1.0, deadline - time.monotonic())
            try:
                status, text = ask(endpoint, warmup.path, body=warmup.json_body, timeout=left, key=key)
            except (OSError, http.client.HTTPException):
                status, text = 0, ""
            if 200 <= status < 300:
                return True
            if status in _REFUSED and status not in (408, 429):
                self.problem = f"the warm-up request POST {warmup.path} was refused: {status} {text[:300].strip()}"
                if status in (401, 403):
                    self.problem += _about_key(variable, key)
                return False
            self._cancelled.wait(_EVERY)
        return False


def _about_key(variable: str | None, key: str) -> str:
    """Which variable a refused probe has to do with."""
    if variable is None:
        return "; the server wants a key, and there is no variable for it"
    return f"; the key it was sent is that of {variable}" if key else f"; the server wants a key: {variable} is not set"
