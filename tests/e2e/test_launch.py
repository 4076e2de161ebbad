"""The launch commands with a stand-in engine: a program on PATH that serves as vLLM does, or fails as engines do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from stand_in import put_engines


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins called vllm and sglang on PATH, and no GPU but those a test makes up."""
    put_engines(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PIDS", str(tmp_path / "pids.json"))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "STAND_IN"):
        monkeypatch.delenv(name, raising=False)
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(
        json.dumps({"num_attention_heads": 8, "num_hidden_layers": 2, "hidden_size": 64})
    )
    return tmp_path


def gpus(folder: Path, count: int) -> None:
    line = "{0}, NVIDIA H100 80GB HBM3, 81559, 1, 580.159.04, GPU-{0}, Disabled, 9.0"
    lines = "\n".join(line.format(number) for number in range(count))
    (folder / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    (folder / "bin" / "nvidia-smi").chmod(0o755)


def atropos(*words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


@pytest.fixture
def foreground() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the program and leave it running; ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def _nothing_left(engines: Path) -> Iterator[None]:
    """Stop what a failed test left behind."""
    yield
    for path in (engines / "state").glob("atropos/servers/*/server.json"):
        if record(engines, path.parent.name)["state"] not in ("failed", "stopped"):
            atropos("launch-vllm", "--stop", "--name", path.parent.name)


def until(check: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def alive(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.append(pid)
    return found


def record(folder: Path, name: str = "tiny") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / "state/atropos/servers" / name / "server.json").read_text())
    return data


def test_detached_status_gen_stop(engines: Path) -> None:
    started = atropos("launch-vllm", str(engines / "tiny"), "--detach", "--json", "--", "--max-model-len", "512")
    assert started.returncode == 0, started.stderr
    found = json.loads(started.stdout)
    assert found["state"] == "ready"
    can = {key: found["capabilities"][key] for key in ("token_ids", "logprobs", "prompt_logprobs")}
    assert can == {"token_ids": True, "logprobs": True, "prompt_logprobs": True}
    url = found["urls"][0]
    shown = atropos("launch-vllm", "--status", "--name", "tiny")
    assert shown.returncode == 0
    assert url in shown.stdout
    assert "token ids, logprobs" in shown.stderr
    made = atropos("gen", "arithmetic", "--base-url", url, "--limit", "2", "--group-size", "2", "-o", "-")
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.splitlines()) == 2
    again = atropos("launch-vllm", str(engines / "tiny"), "--detach")
    assert again.returncode == 7
    assert "is running already" in again.stderr
    began = time.monotonic()
    stopped = atropos("launch-vllm", "--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert time.monotonic() - began < 10
    assert record(engines)["state"] == "stopped"
    log = (engines / "state/atropos/servers/tiny/logs/latest/server0.log").read_text()
    assert '"--max-model-len", "512"' in log
    assert atropos("launch-vllm", "--status", "--name", "tiny").returncode == 1


def test_b08_the_end_of_the_child_is_seen_at_once(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "memory")
    began = time.monotonic()
    for words in (("launch-vllm", str(engines / "tiny")), ("launch-vllm", str(engines / "tiny"), "--detach")):
        done = atropos(*words)
        assert done.returncode == 7
        assert "CUDA out of memory. Tried to allocate 2.00 GiB." in done.stderr
        log = next(line for line in done.stderr.splitlines() if "the whole log: " in line).partition("log: ")[2]
        assert "OutOfMemoryError" in Path(log).read_text()
        assert "--memory-fraction" in done.stderr
    assert time.monotonic() - began < 30


def test_never_ready(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN", "silent")
    done = atropos("launch-vllm", str(engines / "tiny"), "--start-timeout", "2")
    assert done.returncode == 7
    assert "not ready after 2 s" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_g12_nothing_outlives_the_launcher(
    number: int,
    engines: Path,
    monkeypatch: pytest.MonkeyPatch,
    foreground: Callable[..., subprocess.Popen[str]],
) -> None:
    monkeypatch.setenv("STAND_IN", "children")
    process = foreground("launch-vllm", str(engines / "tiny"))
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    pids = json.loads((engines / "pids.json").read_text())
    assert len(alive(pids)) == 4
    began = time.monotonic()
    process.send_signal(number)
    until(lambda: not alive(pids), 15)
    assert time.monotonic() - began < 15
    assert process.wait(10) == {signal.SIGKILL: -9}.get(signal.Signals(number), 130)
    if number == signal.SIGKILL:
        shown = atropos("launch-vllm", "--status", "--name", "tiny", "--json")
        assert (shown.returncode, json.loads(shown.stdout)["state"]) == (1, "gone")


def test_a_server_that_dies_in_use_is_noticed(
    engines: Path, monkeypatch: pytest.MonkeyPatch, foreground: Callable[..., subprocess.Popen[str]]
) -> None:
    monkeypatch.setenv("STAND_IN", "children")
    process = foreground("launch-vllm", str(engines / "tiny"))
    assert process.stdout is not None
    process.stdout.readline()
    pids = json.loads((engines / "pids.json").read_text())
    began = time.monotonic()
    os.kill(pids[0], signal.SIGKILL)
    assert process.wait(20) == 5
    assert time.monotonic() - began < 10
    assert process.stderr is not None
    assert "service server0 ended with 137 while it was used" in process.stderr.read()
    assert alive(pids) == []


def test_a_dead_engine_behind_a_living_server_is_noticed(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's API server answers 503 then, and may take long to end."""
    monkeypatch.setenv("STAND_IN", "dead")
    began = time.monotonic()
    done = atropos("launch-vllm", str(engines / "tiny"))
    assert done.returncode == 5, done.stderr
    assert "the engine of server0 has died (GET /health answers 503)" in done.stderr
    assert time.monotonic() - began < 30


def test_a_taken_port_names_its_owner(engines: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = atropos("launch-vllm", str(engines / "tiny"), "--port", str(port))
    assert done.returncode == 7
    assert f"port {port} is taken by " in done.stderr
    assert f"(pid {os.getpid()})" in done.stderr


def test_g10_two_launches_at_once_get_two_ports(engines: Path) -> None:
    words = ("launch-vllm", str(engines / "tiny"), "--detach", "--no-wait", "--name")
    for name in ("one", "two"):
        assert atropos(*words, name).returncode == 0
    urls = {until(lambda name=name: record(engines, name)["urls"])[0] for name in ("one", "two")}  # type: ignore[misc]
    assert len(urls) == 2
    unsure = atropos("launch-vllm", "--stop")
    assert unsure.returncode == 2
    assert "one, two" in unsure.stderr


def test_a_given_port_is_used_and_free_again_after_stop(engines: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    for _ in range(2):
        done = atropos("launch-vllm", str(engines / "tiny"), "--port", str(port), "--detach")
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == f"http://127.0.0.1:{port}/v1"
        assert atropos("launch-vllm", "--stop").returncode == 0


def test_g14_each_server_gets_a_part_of_the_visible_gpus(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(engines, 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    done = atropos("launch-sglang", str(engines / "tiny"), "--tp", "2", "--detach", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["urls"]) == 2
    logs = engines / "state/atropos/servers/tiny/logs/latest"
    seen = [(logs / f"server{number}.log").read_text().splitlines()[1] for number in (0, 1)]
    assert seen == ["CUDA_VISIBLE_DEVICES 4,5", "CUDA_VISIBLE_DEVICES 6,7"]
    assert atropos("launch-sglang", "--stop").returncode == 0
    more = atropos("launch-sglang", str(engines / "tiny"), "--gpus", "5")
    assert more.returncode == 2
    assert "only 4" in more.stderr


def test_in_tmux(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    monkeypatch.setenv("TMUX_TMPDIR", str(engines))  # a tmux server of the test's own
    done = atropos("launch-vllm", str(engines / "tiny"), "--tmux", "--name", "in-tmux")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:")
    assert atropos("launch-vllm", "--stop", "--name", "in-tmux").returncode == 0
    assert record(engines, "in-tmux")["state"] == "stopped"
    subprocess.run(["tmux", "-L", "atropos", "kill-server"], capture_output=True)


def test_without_the_engine_or_a_gpu(engines: Path) -> None:
    gone = atropos("launch-sglang", str(engines / "tiny"))
    assert gone.returncode == 7
    assert "SGLang needs a GPU" in gone.stderr
    (engines / "bin" / "vllm").unlink()
    done = atropos("launch-vllm", str(engines / "tiny"))
    assert done.returncode == 7
    assert "vllm is not installed here" in done.stderr
    assert "pip install vllm" in done.stderr


def test_dry_run_starts_nothing(engines: Path) -> None:
    gpus(engines, 2)
    done = atropos("launch-sglang", "Qwen/Qwen3-8B", "--tp", "1", "--dry-run", "--", "--mem-fracton-static", "0.8")
    assert done.returncode == 0
    assert done.stdout.count("sglang serve --model-path Qwen/Qwen3-8B") == 2
    assert "did you mean --mem-fraction-static?" in done.stderr
    assert not (engines / "state").exists()
    strict = atropos("launch-sglang", "Qwen/Qwen3-8B", "--strict", "--", "--mem-fracton-static", "0.8")
    assert strict.returncode == 2
