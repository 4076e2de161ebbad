"""`launch-sglang` with the real SGLang on CPU, started once, with a key: what it gives, what ends it.

Its Python is that of ATROPOS_TEST_SGLANG, or of the environment that .ci/sglang makes and keeps in the user's cache.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.builtin.openai.backend import OpenAIBackend
from atropos_cli.builtin.openai.config import OpenAIConfig
from atropos_cli.sdk import user
from atropos_cli.sdk.backends import Completion, GenerateRequest, Generation, Sampling

from .test_launch_real import below

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.sglang]
ROOT = Path(__file__).resolve().parents[2]
KEY = "key-of-this-test-71"
PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]
CPU = ("--device", "cpu", "--sampling-backend", "pytorch", "--max-total-tokens", "4096", "--disable-overlap-schedule")
LAUNCH = (
    "--name",
    "real",
    "--context",
    "2048",
    "--dtype",
    "float32",
    "--memory-fraction",
    "0.5",
    "--detach",
    "--json",
)
LAUNCH = (*LAUNCH, "--attention-backend", "torch_native", "--tool-parser", "qwen", "--start-timeout", "900")
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look around.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}
ENDS = 30.0
"""Seconds within which the end of a server must be over."""


@dataclass(frozen=True)
class Real:
    """The server: where its records are, its models' folders, the environment of commands about it."""

    state: Path
    models: Path
    environment: dict[str, str]

    def atropos(self, *words: str, key: str | None = KEY, timeout: float = 1000) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **({"SGLANG_API_KEY": key} if key else {})}
        return subprocess.run(
            [*PROGRAM, *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env=environment,
        )

    @property
    def folder(self) -> Path:
        return self.state / "atropos/servers/real"

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "server.json").read_text())
        return found

    @property
    def tree(self) -> dict[int, str]:
        """Its processes."""
        return below(json.loads((self.folder / "endpoints/server0.json").read_text())["parent"])


@pytest.fixture(scope="module")
def python() -> str:
    """SGLang's Python."""
    if named := os.environ.get("ATROPOS_TEST_SGLANG"):
        return named
    script = ROOT / ".ci/sglang"
    if not script.exists():
        pytest.skip("not a whole checkout")
    environment = {**os.environ, "ATROPOS_TEST_VENV": str(Path(sys.executable).parents[1])}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=environment, timeout=1200)
    if done.returncode:
        pytest.skip(f"the environment with SGLang cannot be made: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


@pytest.fixture(scope="module")
def real(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """The server, ready; stopped after the last test if it still runs."""
    base = tmp_path_factory.mktemp("sglang")
    maker = ROOT / "tests/fixtures/sglang/tiny_model.py"
    subprocess.run([sys.executable, str(maker), str(base / "models")], check=True, capture_output=True, timeout=300)
    left_out = ("SGLANG_API_KEY", "CUDA_VISIBLE_DEVICES", "XDG_CONFIG_HOME")
    kept = {
        name: value for name, value in os.environ.items() if name not in left_out and not name.startswith("ATROPOS_")
    }
    own = {"HOME": str(base), "XDG_STATE_HOME": str(base / "state"), "HF_HUB_OFFLINE": "1"}
    server = Real(base / "state", base / "models", {**kept, **own})
    model = str(server.models / "random")
    began = time.monotonic()
    rest = ("--", *CPU, "--skip-server-warmup", "--model-impl", "transformers")
    done = server.atropos("launch-sglang", model, "--engine-python", python, *LAUNCH, *rest)
    print(f"SGLang was ready after {time.monotonic() - began:.0f} s")
    try:
        assert done.returncode == 0, done.stderr
        yield server
    finally:
        server.atropos("launch-sglang", "--stop", "--name", "real")


@pytest.fixture
async def backend(real: Real, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIBackend]:
    """A client with the key, which asks for the model by the name it was started with."""
    monkeypatch.setenv("SGLANG_API_KEY", KEY)
    config = OpenAIConfig(base_url=(real.record["urls"][0],), api_key_env="SGLANG_API_KEY")
    made = OpenAIBackend(config, model=str(real.models / "random"))
    await made.open(workers=4, request_timeout=120)
    yield made
    await made.close()


def ask(text: str, **fields: Any) -> GenerateRequest:
    sampling = Sampling(max_tokens=8, temperature=fields.pop("temperature", 1.0))
    return GenerateRequest(messages=(user(text),), sampling=sampling, **fields)


def farthest(folder: Path, generation: Generation) -> float:
    """The largest difference between the logprobs of the replies and those that transformers computes."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompt = list(generation.prompt_ids or ())
    assert prompt
    return max(_farthest(model, prompt, completion) for completion in generation.completions)


def _farthest(model: Any, prompt: list[int], completion: Completion) -> float:
    span = completion.message.tokens
    assert span is not None
    assert span.logprobs is not None
    assert span.ids
    with torch.no_grad():
        logits = model(torch.tensor([prompt + list(span.ids)])).logits[0, len(prompt) - 1 : -1]
    wanted = logits.log_softmax(-1).gather(1, torch.tensor(span.ids)[:, None])[:, 0]
    return float((wanted - torch.tensor(span.logprobs)).abs().max())


def test_it_is_ready_and_known(real: Real) -> None:
    record = real.record
    can = record["capabilities"]
    assert (record["state"], record["key_env"]) == ("ready", "SGLANG_API_KEY")
    assert [can[name] for name in ("token_ids", "logprobs", "prompt_logprobs", "tools")] == [True] * 4
    assert (can["context"], can["tool_parser"], can["models"]) == (2048, "qwen", [str(real.models / "random")])
    assert can["version"].count(".") == 2
    assert any("schedul" in name for name in real.tree.values())  # names of processes are cut at 15 letters
    shown = real.atropos("launch-sglang", "--status", "--name", "real", key=None)
    assert shown.returncode == 0, shown.stderr
    assert "--api-key-env SGLANG_API_KEY" in shown.stderr


def test_the_key_is_wanted_and_shown_nowhere(real: Real) -> None:
    words = ("gen", "arithmetic", "--base-url", real.record["urls"][0], "--limit", "1", "--max-wait", "1", "-o", "-")
    refused = real.atropos(*words)
    assert refused.returncode == 5, refused.stderr
    assert "--api-key-env SGLANG_API_KEY" in refused.stderr
    wrong = real.atropos(*words, "--api-key-env", "SGLANG_API_KEY", key="another")
    assert wrong.returncode == 5
    assert "check the API key in the environment variable SGLANG_API_KEY" in wrong.stderr
    for pid in real.tree:
        assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    files = [path for path in real.folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []


def test_gen_gets_tokens_and_logprobs(real: Real) -> None:
    words = ("--limit", "2", "--group-size", "3", "--max-tokens", "8", "--logprobs", "require", "-o", "-")
    url = real.record["urls"][0]
    made = real.atropos("gen", "arithmetic", "--base-url", url, "--api-key-env", "SGLANG_API_KEY", *words)
    assert made.returncode == 0, made.stderr
    groups = [json.loads(line) for line in made.stdout.splitlines()]
    assert [len(group["rollouts"]) for group in groups] == [3, 3]


async def test_logprobs_are_those_of_transformers_before_and_after_new_weights(
    real: Real, backend: OpenAIBackend
) -> None:
    first = await backend.generate(ask("What is 6*7?", n=2, logprobs="require"))
    assert len(first.completions) == 2
    assert farthest(real.models / "random", first) < 1e-4
    await backend.update_weights(str(real.models / "chains"), version=7)
    second = await backend.generate(ask("hello", logprobs="require"))
    assert farthest(real.models / "chains", second) < 1e-4
    assert (await backend.identity() or {})["weights"] == [{"path": str(real.models / "chains"), "version": "7"}]


async def test_with_new_weights_the_old_name_is_still_served(real: Real, backend: OpenAIBackend) -> None:
    """SGLang lists the folder of its last weights as its model from then on."""
    await backend.update_weights(str(real.models / "chains"), version=8)
    words = ("--limit", "1", "--group-size", "1", "--max-tokens", "4", "-o", "-")
    asked = ("--base-url", real.record["urls"][0], "--api-key-env", "SGLANG_API_KEY")
    made = real.atropos("gen", "arithmetic", *asked, "--model", str(real.models / "random"), *words)
    assert made.returncode == 0, made.stderr
    other = real.atropos("gen", "arithmetic", *asked, "--model", "org/other", *words)
    assert other.returncode != 0
    assert "has no model 'org/other'" in other.stderr


async def test_a_tool_call_is_parsed_and_plain_text_is_not_one(real: Real, backend: OpenAIBackend) -> None:
    await backend.update_weights(str(real.models / "chains"), version=9)
    called = (await backend.generate(ask("look", tools=(TOOL,), temperature=0.0))).completions[0].message
    assert called.tool_calls is not None
    (call,) = called.tool_calls
    assert (call.function.name, json.loads(str(call.function.arguments))) == ("look", {"where": "north"})
    plain = (await backend.generate(ask("hello", tools=(TOOL,), temperature=0.0))).completions[0].message
    assert (plain.tool_calls or (), plain.text) == ((), " there friend")
    untold = (await backend.generate(ask("look", temperature=0.0))).completions[0].message
    assert untold.tool_calls is None  # no tools were offered
    assert "<tool_call>" in untold.text


def test_a_killed_scheduler_is_noticed_and_nothing_is_left(real: Real) -> None:
    tree = real.tree
    victim = next(pid for pid, name in tree.items() if "schedul" in name)
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    while real.record["state"] == "ready" and time.monotonic() - began < ENDS:
        time.sleep(0.2)
    record = real.record
    assert (record["state"], record["code"]) == ("failed", 70)
    assert "server0" in record["reason"]
    assert "Subprocess scheduler_0" in (real.folder / "logs/latest/server0.log").read_text()
    assert time.monotonic() - began < ENDS
    assert _left(tree) == []


def _left(tree: dict[int, str]) -> list[int]:
    deadline = time.monotonic() + 5
    while (left := [pid for pid in tree if _living(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
