"""Old and new versions of SGLang, one port for all copies, and keys: with stand-ins for the engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_serving.program import find_program
from atropos_serving.servers import ServerRequest, Servers, plan_servers
from atropos_serving.settings import LaunchSettings

from atropos_cli.builtin.openai.backend import OpenAIBackend
from atropos_cli.builtin.openai.config import OpenAIConfig
from atropos_cli.sdk import UsageError
from atropos_cli.sdk.jobs import write_job
from atropos_cli.sdk.launchers import JobPlan
from atropos_cli.sdk.serving import ServerRecord, read_server, write_record

sys.path.insert(0, str(Path(__file__).parent))
from stand_in import put_engines, put_sglang

KEY = "key-of-this-test-72"
CARD = "{0}, NVIDIA H100 80GB HBM3, 81559, 1, 580.159.04, GPU-{0}, Disabled, 9.0"


def atropos(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine with two GPUs, a model and the commands vllm and sglang; what runs at the end is stopped."""
    put_engines(tmp_path / "bin", monkeypatch)
    smi = tmp_path / "bin/nvidia-smi"
    smi.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(CARD.format(number) for number in range(2)) + "\nEND\n")
    smi.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "STAND_IN", "SGLANG_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tiny").mkdir()
    config = {"num_attention_heads": 8, "num_hidden_layers": 2, "hidden_size": 64}
    (tmp_path / "tiny/config.json").write_text(json.dumps(config))
    yield tmp_path
    if (tmp_path / "state/atropos/servers/tiny/server.json").exists():
        atropos("launch-sglang", "--stop", "--name", "tiny")


@pytest.fixture
def launched(place: Path) -> Callable[..., dict[str, Any]]:
    """launched(options...) -> the record of a server that became ready"""

    def call(*words: str, engine: str = "sglang") -> dict[str, Any]:
        done = atropos(f"launch-{engine}", str(place / "tiny"), "--detach", "--json", *words)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return call


def planned(place: Path, *words: str, engine: str = "sglang") -> list[list[str]]:
    """The command lines of a dry run."""
    done = atropos(f"launch-{engine}", str(place / "tiny"), "--dry-run", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [component["argv"] for component in json.loads(done.stdout)["plan"]["components"]]


def log(place: Path, name: str = "server0") -> str:
    return (place / "state/atropos/servers/tiny/logs/latest" / f"{name}.log").read_text()


@pytest.mark.parametrize(
    ("form", "command", "wanted"),
    [
        ("new", True, ["sglang", "serve"]),
        ("new", False, ["-c", "serve"]),
        ("old", True, ["-m", "sglang.launch_server"]),
        ("late", True, ["sglang", "serve"]),
    ],
)
def test_the_form_is_that_of_the_installed_version(form: str, command: bool, wanted: list[str], place: Path) -> None:
    python = put_sglang(place / "engine", form, command=command)
    (line,) = planned(place, "--engine-python", python, "--tp", "2", "--eager")
    head = line[: line.index("--model-path")]
    if wanted == ["sglang", "serve"]:
        assert head == [str(place / "engine/bin/sglang"), "serve"]
    else:
        assert (head[0], head[1], head[-1]) == (python, wanted[0], wanted[1])
    assert ("--disable-cuda-graph" in line) == (form == "old")


@pytest.mark.parametrize("form", ["new", "old", "late"])
def test_every_form_serves(form: str, place: Path, launched: Callable[..., dict[str, Any]]) -> None:
    python = put_sglang(place / "engine", form, command=False)
    assert launched("--engine-python", python, "--tp", "2")["state"] == "ready"
    assert f"stand-in {'module' if form == 'old' else 'serve'} " in log(place)


def test_a_command_of_an_old_version_on_path_is_not_asked_to_serve(place: Path) -> None:
    """Its first line names the Python that is looked at."""
    python = put_sglang(place / "engine", "old")
    (place / "bin/sglang").write_text(f"#!{python}\n")
    (line,) = planned(place, "--tp", "2")
    assert line[:3] == [python, "-m", "sglang.launch_server"]


def test_a_python_without_the_engine_is_named(place: Path) -> None:
    done = atropos("launch-sglang", str(place / "tiny"), "--engine-python", sys.executable)
    assert done.returncode == 7
    assert f"sglang is not installed for --engine-python {sys.executable}" in done.stderr


def test_copies_are_servers_with_a_port_each_unless_one_port_is_wanted(place: Path) -> None:
    alone = put_sglang(place / "engine", "new")
    assert len(planned(place, "--engine-python", alone)) == 2
    (one,) = planned(place, "--engine-python", alone, "--one-port")
    assert one[one.index("--dp-size") + 1] == "2"
    (one,) = planned(place, "--one-port", engine="vllm")
    assert one[one.index("--data-parallel-size") + 1] == "2"
    routed = put_sglang(place / "with-router", "new", router=True)
    assert len(planned(place, "--engine-python", routed, "--one-port")) == 1  # on one node it is not needed
    router = spread(place, routed).components[-1]
    assert router.argv[:3] == (routed, "-m", "sglang_router.launch_router")
    assert spread(place, routed).heads == (router,)
    assert any("not for training" in note for note in spread(place, routed).notes)
    with pytest.raises(UsageError) as caught:
        spread(place, alone)
    assert "pip install sglang-router" in str(caught.value.hint)


def spread(place: Path, python: str) -> Servers:
    """Two servers on two nodes, behind one port."""
    program = find_program("sglang", python)
    have = LaunchSettings(one_port=True, tp=1)
    return plan_servers(ServerRequest("sglang", str(place / "tiny"), have, nodes=2, gpus_per_node=1, program=program))


def test_the_router_is_the_one_address(place: Path) -> None:
    """The servers of two nodes, here played by one. They end when it dies: nothing could reach them."""
    python = put_sglang(place / "engine", "new", router=True)
    folder = place / "job"
    model = str(place / "tiny")
    components = tuple(item.replace(node=0, gpus=None) for item in spread(place, python).components)
    write_job(JobPlan(atropos_version="0", name="job", components=components, cwd=str(place)), folder)
    write_record(folder, ServerRecord("job", "sglang", model, model))
    process = subprocess.Popen([sys.executable, "-P", "-m", "atropos_serving.hold", str(folder)])
    try:
        deadline = time.monotonic() + 120
        while (record := read_server(folder)) is None or record.state != "ready":
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        (url,) = record.urls
        assert record.capabilities["token_ids"] is True
        made = atropos("gen", "arithmetic", "--base-url", url, "--limit", "4", "--group-size", "1", "-o", "-")
        assert made.returncode == 0, made.stderr
        assert len(made.stdout.splitlines()) == 4
        os.kill(json.loads((folder / "endpoints/router.json").read_text())["pid"], signal.SIGKILL)
        assert process.wait(60) == 70
    finally:
        process.terminate()
        process.wait(60)
    end = json.loads((folder / "exit.json").read_text())
    assert (end["component"], end["code"]) == ("router", 70)
    ended = read_server(folder)
    assert ended is not None
    assert (ended.state, "router" in str(ended.reason)) == ("failed", True)
    logs = folder / "logs/latest"
    assert sorted(path.stem for path in logs.glob("*.log")) == ["router", "server0", "server1"]


async def test_a_key_goes_from_the_variable_to_server_probes_and_clients(
    place: Path, launched: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = put_sglang(place / "engine", "old")
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    record = launched("--engine-python", python, "--tp", "2")
    assert record["capabilities"]["token_ids"] is True
    assert '"--api-key", "***"' in log(place)
    for path in (place / "state").rglob("*"):
        assert not path.is_file() or KEY not in path.read_text(errors="replace")
    config = OpenAIConfig(base_url=(record["urls"][0],), api_key_env="SGLANG_API_KEY")
    backend = OpenAIBackend(config, model=None)
    await backend.open(workers=1, request_timeout=30)
    await backend.update_weights(str(place / "tiny"), version=1)
    await backend.close()
    words = ("gen", "arithmetic", "--base-url", record["urls"][0], "--limit", "1", "--group-size", "1", "-o", "-")
    assert atropos(*words, "--api-key-env", "SGLANG_API_KEY").returncode == 0
    refused = atropos(*words)
    assert refused.returncode == 5
    assert "--api-key-env SGLANG_API_KEY" in refused.stderr


def test_a_key_needs_a_python_that_is_known(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of another kind on PATH would start without it."""
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    (place / "bin/sglang").write_text("#!/bin/sh\nexec true\n")
    done = atropos("launch-sglang", str(place / "tiny"))
    assert done.returncode == 7
    assert "SGLANG_API_KEY is set" in done.stderr
    assert "--engine-python" in done.stderr


@pytest.mark.parametrize(("sent", "said"), [("", "is not set"), ("wrong", "the key it was sent is that of")])
def test_a_server_that_has_its_key_from_elsewhere_names_the_variable(
    sent: str, said: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a file of the engine's own, behind --: --config FILE."""
    python = put_sglang(place / "engine", "new")
    monkeypatch.setenv("STAND_IN_KEY", KEY)
    words = ("launch-sglang", str(place / "tiny"), "--engine-python", python, "--tp", "2", "--start-timeout", "60")
    if sent:
        monkeypatch.setenv("SGLANG_API_KEY", sent)
    done = atropos(*words)
    assert done.returncode == 7
    assert said in done.stderr
    assert "SGLANG_API_KEY" in done.stderr
    assert os.environ["STAND_IN_KEY"] not in done.stderr
