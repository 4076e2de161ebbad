"""`gen`, `train grpo` and `slurm submit` with nothing named: what is running, what ships, what the folder describes."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli.cli.backends import seen_at
from atropos_cli.serving.record import ServerRecord
from atropos_cli.serving.state import STATE_FILE, all_servers, held, server_folder, write_record

DIGITS = "./digits.py:Digits"


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("digits.py").write_text("from atropos_authoring.digits import Digits\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "state"))


@pytest.fixture
def launched() -> Iterator[MockServer]:
    """A server as `launch-vllm --detach` leaves it: answering, its record written, its folder held."""
    with MockServer(models=("tiny",), reply="12") as server:
        folder = server_folder("tiny")
        record = ServerRecord("tiny", "vllm", "tiny", "tiny", host=socket.gethostname(), state="ready")
        write_record(folder, record.replace(urls=(server.base_url,)))
        with held(folder):
            yield server


def plan(done: Any) -> dict[str, Any]:
    assert done.code == 0, done.stderr
    found: dict[str, Any] = done.json
    return found


def test_a_server_of_ours_that_runs_is_used(cli: Any, launched: MockServer) -> None:
    done = cli("gen", DIGITS, "--limit", "2", "--group-size", "2", "--output", "run")
    assert done.code == 0, done.stderr
    assert "model: tiny, served by tiny" in done.stderr
    stored = json.loads(Path("run/plan.json").read_text())
    assert stored["backend"]["config"]["base_url"] == [launched.base_url]


def test_what_is_named_is_never_looked_for(cli: Any, launched: MockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(models=("other",), reply="12") as other:
        for flags in (["--base-url", other.base_url], []):
            if not flags:
                monkeypatch.setenv("ATROPOS_BASE_URL", other.base_url)
            found = plan(cli("gen", DIGITS, "--dry-run", "--json", *flags))
            assert found["backend"]["config"]["base_url"] == [other.base_url]
    assert plan(cli("eval", DIGITS, "--dry-run", "--json", "--model", "m", "--backend", "scripted"))["model"] == "m"


def test_a_server_that_ended_is_not_used(cli: Any) -> None:
    write_record(
        server_folder("old"),
        ServerRecord(
            "old", "vllm", "m", "m", host=socket.gethostname(), state="ready", urls=("http://127.0.0.1:9/v1",)
        ),
    )
    found = plan(cli("gen", DIGITS, "--dry-run", "--json"))
    assert (found["model"], found["backend"]["name"]) == ("smollm2", "local")


RECORD = {"name": "x", "engine": "vllm", "model": "m", "served_name": "m", "host": "another", "state": "ready"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"name": "x", "eng',
        "[]",
        json.dumps(RECORD | {"started": "now"}),
        json.dumps(RECORD | {"urls": [1]}),
        json.dumps(RECORD | {"urls": "http://127.0.0.1:8001/v1"}),
        json.dumps(RECORD | {"urls": ["http://127.0.0.1:99999/v1"]}),
        json.dumps(RECORD | {"urls": ["file:///etc/passwd"]}),
        json.dumps(RECORD | {"served_name": None}),
        json.dumps(RECORD | {"state": ["ready"]}),
    ],
)
def test_a_broken_record_is_no_server(text: str) -> None:
    server_folder("x").mkdir(parents=True)
    (server_folder("x") / STATE_FILE).write_text(text)
    write_record(server_folder("y"), ServerRecord("y", "vllm", "m", "m", host="another", state="ready"))
    assert [record.name for record in all_servers()] == ["y"]


def test_another_server_at_the_recorded_address_is_not_used(cli: Any) -> None:
    with MockServer(models=("other",), reply="12") as other:
        record = ServerRecord("old", "vllm", "m", "m", host="another", state="ready", urls=(other.base_url,))
        write_record(server_folder("old"), record)
        assert plan(cli("gen", DIGITS, "--dry-run", "--json"))["model"] == "smollm2"


def _page(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def listen() -> Iterator[Callable[[bytes, bytes], str]]:
    """Starts something that says `first` to whoever connects, then `again` every tenth of a second. Its base URL."""
    ended = threading.Event()
    sockets = []

    def talk(server: socket.socket, first: bytes, again: bytes) -> None:
        connection, _ = server.accept()
        try:
            connection.sendall(first)
            while not ended.wait(0.1):
                connection.sendall(again)
        except OSError:
            pass
        connection.close()

    def start(first: bytes, again: bytes = b"") -> str:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)
        threading.Thread(target=talk, args=(server, first, again), daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"

    yield start
    ended.set()
    for server in sockets:
        server.close()


@pytest.mark.parametrize(
    ("first", "again", "models", "locked"),
    [
        (_page(b'{"data": [{"id": "a/b"}, {"id": "c"}]}'), b"", ("a/b", "c"), False),
        (_page(b'{"error": "Unauthorized"}', "401 Unauthorized"), b"", (), True),
        (_page(b"<html>a folder</html>"), b"", (), False),
        (_page(b"nothing here", "404 Not Found"), b"", (), False),
        (_page(b'{"data": []}'), b"", (), False),
        (_page(b'{"data": [{"id": 3}, null]}'), b"", (), False),
        (_page(b"[" * 100_000), b"", (), False),
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"", (), False),
        (b"", b"", (), False),  # never says a word
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n", (), False),  # never ends
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n", b" ", (), False),
    ],
)
def test_what_listens_at_an_address_is_told_at_once(
    listen: Any, first: bytes, again: bytes, models: tuple[str, ...], locked: bool
) -> None:
    began = time.monotonic()
    seen = seen_at(listen(first, again))
    assert (seen.models, seen.locked) == (models, locked)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("url", ["", "::::", "http://h:99999/v1", "http://h:x/v1", "http://xn--\u00fc.\u00fc/v1"])
def test_what_is_no_address_has_no_server(url: str) -> None:
    assert seen_at(url).models == ()


def test_a_resumed_run_keeps_its_model(cli: Any, launched: MockServer) -> None:
    named = ["--backend", "scripted", "--backend.replies", "12"]
    assert cli("gen", DIGITS, "--limit", "1", "--group-size", "2", "--output", "run", *named).code == 0
    found = plan(cli("gen", DIGITS, "--limit", "1", "--resume", "--output", "run", "--dry-run", "--json"))
    assert found["backend"]["name"] == "scripted"


def test_without_any_model_the_error_comes_at_once(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_DISABLE_PLUGINS", "local")
    began = time.monotonic()
    done = cli("gen", DIGITS)
    assert done.code == 2
    assert "no model was named" in done.stderr
    assert "pip install" in done.stderr
    assert time.monotonic() - began < 20


def test_training_alone_learns_sums_on_the_embedded_model(cli: Any) -> None:
    done = cli("train", "grpo", "--dry-run", "--json")
    found = plan(done)
    assert "laptop.toml" in done.stderr
    assert (found["model"], found["rollouts"]["environment"]["name"], found["steps"]) == ("smollm2", "arithmetic", 10)
    assert plan(cli("train", "grpo", "--dry-run", "--json", "--steps", "3"))["steps"] == 3
    assert cli("train", "grpo", "--model", "smollm2", "--dry-run").code == 2


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (
            {"atropos.toml": '[slurm]\ncommand = "gen ./digits.py:Digits --limit 3"\n'},
            "gen ./digits.py:Digits --limit 3",
        ),
        ({"plan.json": "{}"}, "run plan.json"),
        ({"atropos.toml": '[slurm]\ncommand = "gen \'x"\n'}, None),
        ({}, None),
    ],
)
def test_slurm_submit_alone_submits_what_the_folder_describes(
    cli: Any, files: dict[str, str], words: str | None
) -> None:
    for name, text in files.items():
        Path(name).write_text(text)
    done = cli("slurm", "submit", "--dry-run", "--no-check") if words else cli("slurm", "submit")
    if words is None:
        assert done.code == 2
        assert ("No closing quotation" if files else "atropos slurm submit --time 1h -- gen textworld") in done.stderr
        return
    assert done.code == 0, done.stderr
    assert f"describes: {words}" in done.stderr
