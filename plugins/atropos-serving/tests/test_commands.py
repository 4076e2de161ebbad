"""Every rendered command line against the engines' option tables, and against the real parsers where they are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_serving.diagnose import hint_of
from atropos_serving.families import FAMILIES, parsers_for
from atropos_serving.modelinfo import ModelInfo
from atropos_serving.options import GONE, option_table, parser_of, problems
from atropos_serving.servers import ServerRequest, plan_servers
from atropos_serving.settings import LaunchSettings

from atropos_cli.domain.placeholders import fill
from atropos_cli.sdk import UsageError
from atropos_cli.sdk.launchers import Component, LaunchError
from atropos_cli.sdk.serving import ENGINES, Engine, Gpu, Platform

ROOT = Path(__file__).resolve().parents[3]
EIGHT = ModelInfo("Qwen/Qwen3-8B", 32, 8, 36, 16_400_000_000, 147_456, 40960)
HUGE = ModelInfo("meta-llama/Llama-3.1-405B-Instruct", 128, 8, 126, 811_000_000_000, 516_096, 131072)
FULL = LaunchSettings(
    tp=2,
    host="0.0.0.0",
    port=9000,
    dtype="float16",
    context=4096,
    max_requests=16,
    memory_fraction=0.5,
    eager=True,
    seed=7,
    served_name="mine",
    tool_parser="hermes",
    reasoning_parser="auto",
)


def machine(kind: str, count: int = 8) -> Platform:
    """A platform of `count` equal GPUs."""
    sizes = {"v100": (32768, (7, 0)), "a100": (81920, (8, 0)), "h100": (81559, (9, 0)), "h200": (143771, (9, 0))}
    sizes |= {"b200": (183359, (10, 0)), "gpu": (24564, (8, 9))}
    memory, capability = sizes[kind]
    gpus = tuple(
        Gpu(number, f"NVIDIA {kind.upper()}", memory, 0, capability, "550.54.15", f"GPU-{number}", token=str(number))
        for number in range(count)
    )
    return Platform(kind, gpus, count, 64.0, 1 << 39)


def requests(engine: Engine) -> Iterator[ServerRequest]:
    """The cases whose command lines are checked."""
    for kind in ("v100", "a100", "h100", "h200", "b200", "gpu"):
        yield ServerRequest(engine, EIGHT.name, gpus_per_node=8, platform=machine(kind), info=EIGHT)
    yield ServerRequest(engine, EIGHT.name, FULL, ("--revision", "main"), 1, 8, machine("h100"), EIGHT)
    yield ServerRequest(engine, HUGE.name, nodes=2, gpus_per_node=8, platform=machine("h100"), info=HUGE)
    yield ServerRequest(engine, "/data/my {port} model", gpus_per_node=1, platform=machine("h100", 1))
    for family in ("Qwen3-Coder-30B", "gpt-oss-120b", "DeepSeek-R1", "Llama-3.1-8B", "unknown-1B"):
        have = LaunchSettings(reasoning_parser="auto")
        yield ServerRequest(engine, f"org/{family}", have, gpus_per_node=1, platform=machine("h200", 1))
    if engine == "vllm":
        yield ServerRequest(engine, "smol", platform=Platform("cpu", memory=8 << 30))


def value(token: str) -> str:
    return "127.0.0.1" if token.endswith("host") else "12345"


def words(component: Component, skip: int = 2) -> list[str]:
    return [fill(word, value) for word in component.argv[skip:]]


def every_line(engine: Engine) -> Iterator[list[str]]:
    for request in requests(engine):
        for component in plan_servers(request).components:
            yield words(component)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_command_line_parses_with_the_table(engine: Engine) -> None:
    lines = list(every_line(engine))
    assert len(lines) > 40
    for line in lines:
        parser_of(option_table(engine)).parse_args(line)
        assert problems(engine, line) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_command_line_parses_with_the_real_parser(engine: Engine) -> None:
    """ATROPOS_TEST_VLLM, ATROPOS_TEST_SGLANG: interpreters of environments that have the engines."""
    python = os.environ.get(f"ATROPOS_TEST_{engine.upper()}")
    if not python:
        pytest.skip(f"ATROPOS_TEST_{engine.upper()} names no Python that has {engine}")
    script = ROOT / "tests" / "fixtures" / "server_options" / "renew.py"
    done = subprocess.run(
        [python, str(script), engine, "--parse-lines"],
        input="\n".join(json.dumps(line) for line in every_line(engine)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(parsed) == len(list(every_line(engine)))
    full = next(row for row in parsed if "mine" in str(row.get("served_model_name")))
    wanted: dict[str, Any] = {"port": 12345, "host": "0.0.0.0", "dtype": "float16", "tool_call_parser": "hermes"}
    assert {key: full[key] for key in wanted} == wanted
    assert full["tp_size" if engine == "sglang" else "tensor_parallel_size"] == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_the_table_is_that_of_the_real_parser(engine: Engine, tmp_path: Path) -> None:
    python = os.environ.get(f"ATROPOS_TEST_{engine.upper()}")
    if not python:
        pytest.skip(f"ATROPOS_TEST_{engine.upper()} names no Python that has {engine}")
    script = ROOT / "tests" / "fixtures" / "server_options" / "renew.py"
    fresh = tmp_path / "table.json"
    subprocess.run([python, str(script), engine, "--write", str(fresh)], check=True, capture_output=True, timeout=300)
    data = json.loads(fresh.read_text())
    if data["version"] != option_table(engine).version:
        pytest.skip(f"{engine} {data['version']} is installed; the table is of {option_table(engine).version}")
    assert tuple(data["options"]) == option_table(engine).rows


def test_old_names_and_typing_errors_are_found() -> None:
    assert problems("vllm", ["m", "--tp", "2"]) == ["--tp is not an option of vllm: write --tensor-parallel-size"]
    assert "did you mean --mem-fraction-static?" in problems("sglang", ["--mem-fracton-static", "0.8"])[0]
    assert "bfloat16" in problems("vllm", ["m", "--dtype", "bfloat61"])[0]
    assert "invalid float" in problems("vllm", ["m", "--gpu-memory-utilization", "much"])[0]
    assert "expected one argument" in problems("sglang", ["--context-length"])[0]
    assert problems("vllm", ["m", "--max_model_len", "8k", "--hf-overrides.a.b", "1", "-tp=2"]) == []
    assert problems("sglang", ["--model-path", "m", "--cuda-graph-max-bs", "8"])[0].endswith(
        "--cuda-graph-max-bs-decode"
    )
    for engine in ENGINES:
        names = option_table(engine).names
        for old, new in GONE[engine].items():
            assert old not in names
            assert new in names or not new.startswith("--")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_parsers_of_all_families_exist(engine: Engine) -> None:
    names = option_table(engine).names
    for family in FAMILIES:
        parsers = family.sglang if engine == "sglang" else family.vllm
        assert parsers.tool is None or parsers.tool in names["--tool-call-parser"]["choices"]
        assert parsers.reasoning is None or parsers.reasoning in names["--reasoning-parser"]["choices"]


@pytest.mark.parametrize(
    ("model", "tool"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3_coder"),
        ("Qwen/Qwen2.5-7B-Instruct", "hermes"),
        ("/models/Qwen3-8B/", "hermes"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("meta-llama/Llama-3.2-3B-Instruct", "llama3_json"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", None),
    ],
)
def test_family_by_name(model: str, tool: str | None) -> None:
    assert parsers_for(model, "vllm").tool == tool


def test_tools_are_offered_only_with_a_parser() -> None:
    def line(**changes: Any) -> tuple[str, ...]:
        request = ServerRequest(
            "vllm", "Qwen/Qwen3-8B", LaunchSettings(**changes), gpus_per_node=1, platform=machine("h100", 1)
        )
        return plan_servers(request).components[0].argv

    assert "--enable-auto-tool-choice" in line()
    assert "--enable-auto-tool-choice" not in line(tool_parser="none")
    assert "--reasoning-parser" not in line()
    assert line(reasoning_parser="auto")[-2:] == ("--reasoning-parser", "qwen3")


def test_independent_servers_share_nothing() -> None:
    servers = plan_servers(
        ServerRequest("sglang", EIGHT.name, LaunchSettings(tp=2, port=31000), (), 1, 8, machine("a100"))
    )
    assert [item.gpus for item in servers.components] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [item.port for item in servers.components] == [31000, 31001, 31002, 31003]
    seeds = [item.argv[item.argv.index("--random-seed") + 1] for item in servers.components]
    assert seeds == ["0", "1", "2", "3"]  # alike, they would all sample the same


def test_a_server_over_two_nodes_meets_at_rank_0() -> None:
    request = ServerRequest("vllm", HUGE.name, nodes=2, gpus_per_node=8, platform=machine("h100"), info=HUGE)
    head, other = plan_servers(request).components
    assert (head.node, other.node, head.health, other.health) == (0, 1, "/health", None)
    assert "{host}" in head.argv
    assert "{endpoint:server0.dist.host}" in other.argv
    assert "--headless" in other.argv
    assert "--headless" not in head.argv
    assert other.awaits() == ("server0",)
    assert "0.0.0.0" in head.argv  # other nodes must reach it


def test_what_users_add_stands_last_and_verbatim() -> None:
    extra = ("--hf-overrides", '{"a": "it\'s $HOME"}', "--max-model-len", "{port}")
    argv = plan_servers(_with_extra(extra)).components[0].argv
    assert [fill(word, value) for word in argv[-4:]] == list(extra)


def _with_extra(extra: tuple[str, ...]) -> ServerRequest:
    return ServerRequest("vllm", "m", extra=extra, gpus_per_node=1, platform=machine("h100", 1))


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (("--port", "1"), "give it --port"),
        (("--tensor_parallel_size=4",), "give it --tp"),
        (("--api-key", "s"), "VLLM_API_KEY"),
        (("--data_parallel_size=2",), "--dp N --one-port"),
        (("-dp", "2"), "--dp N --one-port"),
    ],
)
def test_what_atropos_must_know_is_refused_behind_the_dashes(extra: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_servers(_with_extra(extra))
    assert said in str(caught.value.hint)


def test_strict_turns_unknown_options_into_an_error() -> None:
    assert any("--enforce-eagr" in note for note in plan_servers(_with_extra(("--enforce-eagr",))).notes)
    with pytest.raises(UsageError, match="--enforce-eagr"):
        plan_servers(_with_extra(("--enforce-eagr",)), strict=True)


def test_no_gpu() -> None:
    with pytest.raises(LaunchError, match="SGLang needs a GPU"):
        plan_servers(ServerRequest("sglang", "m", platform=Platform("cpu")))
    with pytest.raises(LaunchError, match="no GPU can be used"):
        plan_servers(ServerRequest("vllm", "m", LaunchSettings(gpus=2), platform=Platform("cpu")))
    with pytest.raises(UsageError, match="only 8"):
        plan_servers(ServerRequest("vllm", "m", LaunchSettings(gpus=9), gpus_per_node=8, platform=machine("h100")))


def test_a_killed_process_of_sglang_is_known_by_its_log(tmp_path: Path) -> None:
    log = tmp_path / "server0.log"
    log.write_text("ok\n[2026] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Triggering SIGQUIT\n")
    assert "SIGKILL" in (hint_of(log) or "")
    log.write_text("ok\n[2026] Subprocess scheduler_0 (pid=7) crashed with exit code 1. Triggering SIGQUIT\n")
    assert hint_of(log) is None


def test_what_sglang_says_of_other_models_is_no_reason(tmp_path: Path) -> None:
    log = tmp_path / "server0.log"
    other = "[2026] Ignore import error when loading sglang.srt.models.inkling: No module named 'cutlass'\n"
    log.write_text(other)
    assert hint_of(log) is None
    log.write_text(other + "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction\n")
    assert "--memory-fraction" in (hint_of(log) or "")
