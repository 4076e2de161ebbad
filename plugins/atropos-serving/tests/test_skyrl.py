"""launch-skyrl: the command line, refused options, and how the engine is started without `uv`, on a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atropos_serving.skyrl import PROGRAM, SkyrlOptions, check_extra, component, find_python

from atropos_cli.domain.placeholders import fill
from atropos_cli.sdk import UsageError
from atropos_cli.sdk.launchers import LaunchError

API = """
import json, os, subprocess, sys, typing
parent = open(f"/proc/{os.getppid()}/cmdline", "rb").read().decode().split("\\0")
place = parent.index("skyrl.tinker.api")
assert parent[place - 1] == "-m" and place >= 3, parent  # what SkyRL looks for
code = subprocess.run(["uv", "run", "--extra", "tinker", "-m", "skyrl.tinker.engine", "a b", '{"x": 1}']).returncode
assert hasattr(typing.TypedDict, "__mro_entries__")
print(json.dumps({"argv": sys.argv[1:], "code": code}))
sys.exit(3)
"""
ENGINE = "import json, os, sys; print(json.dumps({'engine': sys.argv[1:]})); sys.exit(5)"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package of SkyRL's name."""
    folder = tmp_path / "lib" / "skyrl" / "tinker"
    folder.mkdir(parents=True)
    for path in (folder.parent / "__init__.py", folder / "__init__.py"):
        path.write_text("")
    (folder / "api.py").write_text(API)
    (folder / "engine.py").write_text(ENGINE)
    return tmp_path / "lib"


def words(options: SkyrlOptions, model: str = "Qwen/Qwen3-0.6B", extra: tuple[str, ...] = ()) -> list[str]:
    found = component(model, options, Path("/data"), "/py", extra)
    return [fill(word, {"port": "9000"}.__getitem__) for word in found.argv]


def test_the_engine_is_started_by_the_same_python(package: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, str(PROGRAM), "-m", "skyrl.tinker.api", "--base-model", "a model"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    engine, api = (json.loads(line) for line in done.stdout.splitlines())
    assert engine == {"engine": ["a b", '{"x": 1}']}
    assert api == {"argv": ["--base-model", "a model"], "code": 5}
    assert done.returncode == 3


def test_the_command_line() -> None:
    found = words(SkyrlOptions(lora_r=8, adapters=2, batch=16), extra=("--session-timeout-sec", "60"))
    assert found[:4] == ["/py", str(PROGRAM), "-m", "skyrl.tinker.api"]
    given = dict(zip(found[4::2], found[5::2], strict=True))
    assert given["--database-url"] == "sqlite:////data/tinker.db"
    assert given["--checkpoints-base"] == "/data/checkpoints"
    assert (given["--host"], given["--port"], given["--session-timeout-sec"]) == ("127.0.0.1", "9000", "60")
    options = json.loads(given["--backend-config"])
    assert options["max_lora_rank"] == 8
    assert options["max_lora_adapters"] == 2
    assert options["sample_max_num_sequences"] == options["train_micro_batch_size"] == 16


def test_options_of_the_users_own_win() -> None:
    found = words(SkyrlOptions(engine_options={"max_lora_rank": 64, "tensor_parallel_size": 8}))
    options = json.loads(found[found.index("--backend-config") + 1])
    assert (options["max_lora_rank"], options["tensor_parallel_size"]) == (64, 8)
    found = words(SkyrlOptions(engine_backend="megatron", engine_options={"a": {"b": "{port}"}}))
    assert json.loads(found[found.index("--backend-config") + 1]) == {"a": {"b": "{port}"}}


def test_a_cache_of_the_users_own_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def env() -> dict[str, Any]:
        return dict(component("m", SkyrlOptions(), Path("/data"), "/py", ()).env)

    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    assert env()["JAX_COMPILATION_CACHE_DIR"] == "/data/compiled"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/mine")
    assert not env()


@pytest.mark.parametrize("word", ["--port", "--base-model=x", "--backend-config", "--database-url"])
def test_options_that_are_ours_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is set by atropos"):
        check_extra([word])


def test_a_python_without_skyrl() -> None:
    with pytest.raises(LaunchError, match="skyrl is not installed") as caught:
        find_python(sys.executable)
    assert "--engine-python" in str(caught.value.hint)
    with pytest.raises(LaunchError, match="no such program"):
        find_python("/nowhere/python")
