"""The HTTP interface of a running server: answers, keys and codes as environments and trainers know them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from atropos_serve.wire import GROUP_KEYS
from serve_support import REGISTRATION, Server, payload

ENV = {"max_token_length": 64, "desired_name": "e", "weight": 1.0, "group_size": 8}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("serve") / "queue", 0, "--log-requests", "--max-body", "1")
    yield made
    made.stop()


@pytest.fixture
def api(server: Server) -> Iterator[httpx.Client]:
    """A client of the server, which has forgotten everything."""
    with httpx.Client(base_url=server.url, timeout=30) as client:
        assert client.get("/reset_data").text == "Reset successful"
        yield client


def started(api: httpx.Client, **changes: Any) -> int:
    """A trainer waits, and an environment has registered; its id."""
    api.post("/register", json={**REGISTRATION, **changes})
    api.get("/batch")
    return int(api.post("/register-env", json=ENV).json()["env_id"])


def ask_env(api: httpx.Client, env: int) -> httpx.Response:
    return api.request("GET", "/status-env", json={"env_id": env})


def test_before_a_trainer_registers(api: httpx.Client) -> None:
    assert api.get("/info").json() == {"batch_size": -1, "max_token_len": -1}
    assert api.get("/wandb_info").json() == {"group": None, "project": None}
    assert api.post("/register-env", json=ENV).json() == {"status": "wait for trainer to start"}
    assert api.get("/batch").json() == {
        "status": "error",
        "message": "Trainer not registered. Call /register first.",
        "batch": [],
    }
    assert {"tokens", "masks", "scores"} < set(api.get("/latest_example").json())


def test_an_environment_waits_for_the_first_request_of_a_batch(api: httpx.Client) -> None:
    assert list(api.post("/register", json=REGISTRATION).json()) == ["uuid"]
    assert api.post("/register-env", json=ENV).json() == {"status": "wait for trainer to start"}
    assert api.get("/batch").json() == {"batch": None}
    answer = api.post("/register-env", json=ENV).json()
    del answer["env_id"], answer["wandb_name"]
    assert answer == {
        "status": "success",
        "checkpoint_dir": "c",
        "starting_step": 0,
        "checkpoint_interval": 10,
        "num_steps": 5,
    }
    assert api.get("/info").json() == {"batch_size": 16, "max_token_len": 128}
    assert api.get("/wandb_info").json() == {"group": "g", "project": "p"}


def test_groups_become_a_batch(api: httpx.Client) -> None:
    env = started(api)
    assert api.post("/scored_data", json=payload(8, 1, env)).json() == {"status": "received"}
    answer = api.post("/scored_data_list", json=[payload(8, 2, env)])
    assert answer.json() == {"status": "received", "groups_processed": 1}
    status = api.get("/status").json()
    assert (status["current_step"], status["queue_size"], status["reason"]) == (0, 2, None)
    batch = api.get("/batch").json()["batch"]
    assert [tuple(group) for group in batch] == [GROUP_KEYS, GROUP_KEYS]
    assert [group["tokens"][0][0] for group in batch] == [1, 2]
    assert api.get("/latest_example").json() == batch[1]
    assert api.get("/status").json()["current_step"] == 1


def test_what_an_environment_asks_ten_times_a_second(api: httpx.Client) -> None:
    env = started(api)
    api.post("/scored_data", json=payload(8, 1, env))
    assert ask_env(api, env).json() == {
        "current_step": 0,
        "queue_size": 1,
        "unallocated_fraction": 1.0,
        "self_queue_size": 1,
        "max_group_size": 8,
        "env_weight": 1.0,
        "checkpoint_dir": "c",
    }
    api.post("/register", json={**REGISTRATION, "checkpoint_dir": "d"})
    assert ask_env(api, env).json()["checkpoint_dir"] == "d"
    assert api.get("/status-env").status_code == 422
    assert ask_env(api, 10**6).status_code == 200


def test_pieces_are_buffered(api: httpx.Client) -> None:
    env = started(api)
    assert api.post("/scored_data", json=payload(3, 1, env)).json() == {"status": "buffered", "buffer_size": 3}
    answer = api.post("/scored_data_list", json=[payload(2, 1, env), payload(8, 2, env)]).json()
    assert answer == {"status": "received", "groups_processed": 2, "buffered": 1, "last_buffer_size": 5}
    assert api.post("/scored_data", json=payload(3, 1, env)).json() == {"status": "received"}


def test_disconnect(api: httpx.Client) -> None:
    env = started(api)
    assert api.post("/disconnect-env", json={"env_id": env}).json() == {"status": "success"}
    answer = api.post("/disconnect-env", json={"env_id": -1}).json()
    assert (answer["status"], set(answer)) == ("failure", {"status", "error"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokens": []}, "at least one sequence"),
        ({"masks": [[1]]}, "masks: 1 for 2 sequences"),
        ({"masks": [[1], [1]]}, "masks: 1 for the 2 tokens of sequence 0"),
        ({"scores": [1.0]}, "scores: 1 for 2 sequences"),
        ({"scores": [1.0, None]}, "valid number"),
        ({"inference_logprobs": [[0.0], [0.0]]}, "inference_logprobs: 1 for the 2 tokens"),
        ({"messages": [[{"role": "user"}], []]}, "a message has a role and a content"),
        ({"overrides": [{}]}, "overrides: 1 for 2 sequences"),
        ({"tokens": [[1, 1.5], [1, 2]]}, "valid integer"),
        ({"tokens": [[1, 2**70], [1, 2]]}, "not representable"),
    ],
)
def test_a_bad_group_is_refused_with_the_reason(api: httpx.Client, change: dict[str, Any], words: str) -> None:
    started(api)
    for path, body in (("/scored_data", {**payload(2), **change}), ("/scored_data_list", [{**payload(2), **change}])):
        answer = api.post(path, json=body)
        assert answer.status_code == 422, path
        assert words in json.dumps(answer.json()["detail"])
    assert api.get("/status").json()["queue_size"] == 0


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("name", ["scores", "ref_logprobs", "generation_params", "images"])
def test_numbers_that_json_does_not_have(api: httpx.Client, name: str, value: str) -> None:
    started(api)
    text = {"scores": "[@]", "ref_logprobs": "[[@]]", "generation_params": '{"a": [@]}', "images": "[@]"}[name]
    body = json.dumps({"tokens": [[1]], "masks": [[1]], "scores": [1.0], name: "@@"})
    body = body.replace('"@@"', text.replace("@", value))
    answer = api.post("/scored_data", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert api.get("/latest_example").status_code == 200


@pytest.mark.parametrize(
    ("path", "change", "place"),
    [
        ("/register", {"batch_size": 0}, "batch_size"),
        ("/register", {"max_token_len": -1}, "max_token_len"),
        ("/register-env", {"group_size": 0}, "group_size"),
        ("/register-env", {"group_size": 3}, "group_size"),
        ("/register-env", {"weight": -2}, "weight"),
        ("/register-env", {"min_batch_allocation": 1.5}, "min_batch_allocation"),
    ],
)
def test_a_bad_registration_is_refused(api: httpx.Client, path: str, change: dict[str, Any], place: str) -> None:
    started(api)
    answer = api.post(path, json={**(REGISTRATION if path == "/register" else ENV), **change})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", place]


def test_nan_weights(api: httpx.Client) -> None:
    started(api)
    body = json.dumps({**ENV, "weight": 0.5}).replace("0.5", "NaN")
    answer = api.post("/register-env", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("path", "name"),
    [("/register", "wandb_project"), ("/register", "checkpoint_dir"), ("/register-env", "desired_name")],
)
def test_half_of_a_surrogate_pair_is_not_a_name(api: httpx.Client, path: str, name: str) -> None:
    started(api)
    body = json.dumps({**(REGISTRATION if path == "/register" else ENV), name: "a\ud800"})
    answer = api.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["body", name]
    assert [api.get(one).status_code for one in ("/live/data", "/metrics", "/wandb_info")] == [200, 200, 200]


def test_an_environment_without_a_name(api: httpx.Client) -> None:
    started(api)
    assert api.post("/register-env", json={**ENV, "desired_name": None}).json()["wandb_name"].startswith("env_")


def test_gzip_both_ways(api: httpx.Client) -> None:
    started(api, batch_size=8)
    body = gzip.compress(
        json.dumps(payload(8, tag=5, messages=[[{"role": "user", "content": "x" * 200}]] * 8)).encode()
    )
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    half = len(body) // 2
    assert api.post("/scored_data", content=body, headers=headers).json() == {"status": "received"}
    answer = api.get("/batch", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.json()["batch"][0]["tokens"][0][0] == 5
    assert "Content-Encoding" not in api.get("/info", headers={"Accept-Encoding": "gzip"}).headers
    for bad in (body[:half], b"no gzip", body[:half] + b"\0" + body[half:]):
        assert api.post("/scored_data", content=bad, headers=headers).status_code == 400
    members = gzip.compress(b"[") + gzip.compress(b"]")
    assert api.post("/scored_data_list", content=members, headers=headers).json()["groups_processed"] == 0


def test_a_bomb_is_not_unpacked(api: httpx.Client) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    bomb = gzip.compress(b" " * 50_000_000)
    assert len(bomb) < 100_000
    assert api.post("/scored_data", content=bomb, headers=headers).status_code == 413
    assert api.post("/scored_data", content=b" " * 2_000_000).status_code == 413


def test_leases(api: httpx.Client) -> None:
    started(api, batch_size=8)
    api.post("/scored_data_list", json=[payload(8, 1), payload(8, 2)])
    first = api.get("/batch", headers={"X-Atropos-Lease": "60"})
    number = first.json()["batch_id"]
    assert first.headers["X-Atropos-Batch"] == str(number)
    assert api.get("/status").json()["leased_batches"] == 1
    assert api.post(f"/batch/{number}/renew", params={"seconds": 0}).json() == {"status": "success"}
    again = api.get("/batch", headers={"X-Atropos-Lease": "60"})
    assert (again.json()["batch_id"], again.json()["batch"]) == (number, first.json()["batch"])
    second = api.get("/batch", headers={"X-Atropos-Lease": "60", "X-Atropos-Ack": str(number)}).json()
    assert second["batch"][0]["tokens"][0][0] == 2
    for _ in range(2):
        assert api.post(f"/batch/{second['batch_id']}/ack").json() == {"status": "success"}
    assert api.post(f"/batch/{second['batch_id'] + 1}/ack").status_code == 404
    assert api.get("/status").json()["leased_batches"] == 0
    for none_or_several in ("", "7", "7,8", "7, 8"):
        assert api.get("/batch", headers={"X-Atropos-Ack": none_or_several}).json() == {"batch": None}
    assert api.get("/batch", headers={"X-Atropos-Ack": "7;8"}).status_code == 422
    for bad in ("0", "-1", "nan", "x", "1e99"):
        assert api.get("/batch", headers={"X-Atropos-Lease": bad}).status_code == 422


def test_a_request_that_is_repeated_with_its_key(api: httpx.Client) -> None:
    started(api)
    for expected in ({"status": "received"}, {"status": "received", "duplicate": True}):
        answer = api.post("/scored_data", json=payload(8), headers={"Idempotency-Key": "a"})
        assert answer.json() == expected
    assert api.get("/status").json()["queue_size"] == 1
    assert api.post("/scored_data", json=payload(8), headers={"Idempotency-Key": "a" * 201}).status_code == 422


def test_metrics(api: httpx.Client) -> None:
    started(api)
    api.post("/scored_data", json=payload(8))
    text = api.get("/metrics").text
    assert "\natropos_queued_groups 1.0\n" in text
    assert 'atropos_requests_total{method="POST",path="/scored_data",status="200"}' in text


def test_names_of_environments_are_escaped(api: httpx.Client) -> None:
    started(api)
    name = '"}\n<script>alert(1)</script>'
    api.post("/register-env", json={**ENV, "desired_name": name})
    assert r"\"}\n<script>" in api.get("/metrics").text
    assert any(env["name"].startswith(name) for env in api.get("/live/data").json()["environments"])
    page = api.get("/live")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert "<script>alert" not in page.text


def test_pages_need_nothing_from_elsewhere(api: httpx.Client) -> None:
    for path in ("/live", "/docs", "/assets/live.js", "/assets/docs.js", "/assets/page.css"):
        page = api.get(path)
        assert page.status_code == 200
        assert "http://" not in page.text
        assert "https://" not in page.text
    assert api.get("/assets/app.py").status_code == 404
    assert "/scored_data" in api.get("/openapi.json").json()["paths"]


def test_other_web_sites_and_other_names_are_refused(api: httpx.Client) -> None:
    assert api.get("/reset_data", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert api.get("/status", headers={"Host": "evil.example:8000"}).status_code == 421
    assert api.get("/status", headers={"Host": "localhost:8000"}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert api.post("/scored_data", json=payload(8), headers={"Origin": origin}).status_code == 403
    own = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
    assert api.post("/scored_data", json=payload(8), headers=own).status_code == 200


def test_requests_are_logged(server: Server, api: httpx.Client) -> None:
    api.get("/info")
    assert "127.0.0.1 GET /info 200" in server.errors.read_text()


def test_a_token_and_no_reset(tmp_path: Path) -> None:
    server = Server(tmp_path / "queue", 0, "--no-reset", variables={"ATROPOS_SERVE__TOKEN": "secret"})
    try:
        with httpx.Client(base_url=server.url, timeout=30) as client:
            assert client.get("/status").status_code == 401
            assert client.get("/live").status_code == 200
            client.headers["Authorization"] = "Bearer secret"
            assert client.get("/status").status_code == 200
            assert client.get("/reset_data").status_code == 403
    finally:
        server.stop()
    assert "secret" not in server.errors.read_text()


def test_a_server_that_ends_keeps_its_queue(tmp_path: Path) -> None:
    server = Server(tmp_path / "queue")
    httpx.post(f"{server.url}/scored_data", json=payload(8), timeout=30)
    assert server.stop() == 0
    server = Server(tmp_path / "queue")
    try:
        assert httpx.get(f"{server.url}/status", timeout=30).json()["queue_size"] == 1
    finally:
        server.stop()
