"""What a server asks for by Retry-After is neither a licence to hammer it nor to hang: a floor, and a cap by max_wait.

Real requests against the mock server. The figures are of one run each: how many requests, how long, how it ended.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer
from support import Adding, StaticRegistry

from atropos_cli.builtin.openai.backend import OpenAIBackend
from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.plan import Execution
from atropos_cli.errors import BackendError, RateLimited, ServerUnavailable, TransientBackendError
from atropos_cli.rollout import dispatch
from atropos_cli.rollout.planner import build_plan
from atropos_cli.rollout.runner import run_gen


def limited(status: int, header: str | None, times: int = -1) -> dict[str, Any]:
    headers = {} if header is None else {"Retry-After": header}
    return {"status": status, "json": {"error": {"message": "slow down"}}, "headers": headers, "times": times}


def gen(server: MockServer, folder: Path, *, limit: int = 8, **execution: Any) -> Any:
    registry: Any = StaticRegistry(Adding, OpenAIBackend)
    settings = GenSettings(
        backend="openai",
        backend_options={"base_url": server.base_url},
        model="mock-model",
        limit=limit,
        group_size=1,
        execution=Execution(**{"workers": 8, "retries": 0, **execution}),
    )
    return run_gen(build_plan(settings, "adding", {}, registry), folder=folder, registry=registry)


@pytest.mark.parametrize("header", ["0", "Wed, 21 Oct 2015 07:28:00 GMT", "soon"])
def test_a_server_that_limits_everything_is_asked_less_and_less_and_then_given_up(
    tmp_path: Path, header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "_LIMITED_WAITS", 1)
    with MockServer([limited(429, header)]) as server:
        began = time.monotonic()
        with pytest.raises(BackendError, match=r"rate limited for .* nothing got through") as caught:
            gen(server, tmp_path / "run", max_wait=1.0, workers=4)
    assert "--resume" in (caught.value.hint or "")
    assert len(server.generations) <= 4 * 6  # a round of all workers before each wait, and the last
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(("status", "header"), [(429, "86400"), (503, "99999"), (500, "7200"), (408, "3600")])
def test_a_day_of_waiting_is_cut_to_max_wait(tmp_path: Path, status: int, header: str) -> None:
    with MockServer([limited(status, header, times=1), {"reply": "1"}]) as server:
        began = time.monotonic()
        summary = gen(server, tmp_path / "run", limit=1, max_wait=1.5, retries=1)
    assert summary.groups_done == 1
    assert 1.0 <= time.monotonic() - began < 30


def test_a_server_that_says_503_and_lets_nobody_in_ends_the_run(tmp_path: Path) -> None:
    with MockServer([limited(503, "3600")]) as server:
        with pytest.raises(ServerUnavailable, match="gave up after"):
            gen(server, tmp_path / "run", max_wait=1.0)
        assert len(server.generations) <= 8 + 3


def test_an_honest_server_is_waited_for_as_it_asks(tmp_path: Path) -> None:
    with MockServer([limited(429, "1", times=3), {"reply": "1"}]) as server:
        began = time.monotonic()
        assert gen(server, tmp_path / "run", workers=1).groups_done == 8
    assert time.monotonic() - began >= 3.0
    assert len(server.generations) == 3 + 8


@pytest.mark.parametrize(
    ("asked", "delay", "longest", "pause"),
    [
        (0.0, 0.5, 45.0, 0.5),
        (None, 0.5, 45.0, 0.5),
        (3.0, 0.5, 45.0, 3.0),
        (1e9, 0.5, 45.0, 45.0),
        (9.0, 0.5, 0.0, 0.5),
    ],
)
def test_the_pause_of_an_error_has_a_floor_and_a_cap(
    asked: float | None, delay: float, longest: float, pause: float
) -> None:
    for kind in (TransientBackendError, RateLimited, ServerUnavailable):
        assert kind("slow", retry_after=asked).pause(delay, longest) == pause
