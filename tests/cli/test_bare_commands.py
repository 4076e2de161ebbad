"""`gen`, `train grpo` and `slurm submit` with nothing named: what is running, what ships, what the folder describes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.engine.serving.state import ServerRecord, held, server_folder, write_record
from atropos_cli.testing.mock_server import MockServer

DIGITS = "./digits.py:Digits"


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("digits.py").write_text("from atropos_cli.testing.digits import Digits\n")
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
