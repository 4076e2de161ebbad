"""Prefetch from a hub on this machine, then work without it: every missing thing is named at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("huggingface_hub")

FAKE_HUB = Path(__file__).resolve().parents[1] / "fixtures" / "fake_hub.py"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """(its folder, its address)"""
    root = tmp_path_factory.mktemp("hub")
    model = root / "models" / "org" / "tiny"
    data = root / "datasets" / "org" / "sums"
    for folder in (model, data):
        folder.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"num_attention_heads": 4, "num_hidden_layers": 1, "hidden_size": 8}))
    for name in ("model.safetensors", "pytorch_model.bin", "tokenizer.json", "model.onnx"):
        (model / name).write_text("{}")
    rows = [{"question": f"{number}+1?", "answer": str(number + 1)} for number in range(3)]
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    process = subprocess.Popen([sys.executable, str(FAKE_HUB), str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    yield root, f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(10)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Caches of the test's own, and nobody at the hub's address."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "ATROPOS_"))}
    return {**kept, "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_DISABLE_XET": "1"}


def atropos(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=env, stdin=subprocess.DEVNULL)


def test_prefetch_then_offline(hub: tuple[Path, str], env: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    root, address = hub
    Path("atropos.toml").write_text(
        f'cache_dir = "{tmp_path / "cache"}"\n'
        '[environments.dataset]\nhub = "org/sums"\nprompt_field = "question"\nanswer_field = "answer"\n'
    )
    online = {**env, "HF_ENDPOINT": address}
    done = atropos(online, "prefetch", "--model", "org/tiny", "--env", "dataset", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["fetched"]
    assert [item["kind"] for item in found] == ["model", "environment"]
    files = {path.name for path in Path(found[0]["place"]).iterdir()}
    assert files == {"config.json", "model.safetensors", "tokenizer.json"}
    assert "train 3 rows" in found[1]["place"]
    asked = (root / "requests.log").read_text()
    assert "pytorch_model.bin" not in asked

    scripted = ("--backend", "scripted", "--backend.replies", "2")
    began = time.monotonic()
    made = atropos(env, "gen", "dataset", "--offline", *scripted, "--limit", "2", "--group-size", "1", "-o", "-")
    assert made.returncode == 0, made.stderr
    assert len(made.stdout.splitlines()) == 2
    other = atropos(env, "gen", "dataset", "--offline", *scripted, "--hub", "org/other", "-o", "-")
    assert other.returncode == 6
    assert "data set 'org/other' is not in the cache, and offline mode is on" in other.stderr
    assert "atropos prefetch --dataset org/other" in other.stderr
    here = atropos(env, "launch-vllm", "org/tiny", "--offline", "--dry-run")
    assert here.returncode == 0, here.stderr
    away = atropos(env, "launch-vllm", "org/away", "--offline", "--dry-run")
    assert away.returncode == 7
    assert "model 'org/away' is not on this machine" in away.stderr
    assert "atropos prefetch --model org/away" in away.stderr
    assert time.monotonic() - began < 100  # each waited for no network
    assert (root / "requests.log").read_text() == asked


def test_a_tokenizer_that_is_not_here(env: dict[str, str]) -> None:
    pytest.importorskip("transformers")
    Path("rows.jsonl").write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    )
    done = atropos(env, "sft-gen", "rows.jsonl", "--format", "text", "--tokenizer", "org/none", "--offline", "-o", "-")
    assert done.returncode == 6
    assert "tokenizer 'org/none' is not on this machine, and offline mode is on" in done.stderr
    assert "atropos prefetch --model org/none" in done.stderr


def test_what_fails_is_said_and_the_rest_comes(hub: tuple[Path, str], env: dict[str, str]) -> None:
    online = {**env, "HF_ENDPOINT": hub[1], "ATROPOS_CACHE_DIR": "cache", "HF_TOKEN": "hf_secretsecret"}
    done = atropos(online, "prefetch", "--model", "gated/x", "--model", "no/such", "--model", "org/tiny")
    assert done.returncode == 6
    assert "'gated/x': access was refused" in done.stderr
    assert "'no/such' is not on" in done.stderr
    assert "model org/tiny: " in done.stdout
    assert "secretsecret" not in done.stdout + done.stderr
    assert Path("cache/hub/models--org--tiny").is_dir()


def test_no_network_is_said_at_once(env: dict[str, str]) -> None:
    began = time.monotonic()
    done = atropos(env, "prefetch", "--model", "org/tiny")
    assert done.returncode == 6
    assert "http://127.0.0.1:9 cannot be reached" in done.stderr
    assert time.monotonic() - began < 20


def test_local_things_need_no_network(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "d.jsonl").write_text("{}\n")
    done = atropos(env, "prefetch", "--model", str(tmp_path / "m"), "--dataset", str(tmp_path / "d.jsonl"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(tmp_path)) >= 2
    assert atropos(env, "prefetch").returncode == 2
    refused = atropos({**env, "ATROPOS_OFFLINE": "1"}, "prefetch", "--model", "org/tiny")
    assert refused.returncode == 2
    assert "offline mode" in refused.stderr
