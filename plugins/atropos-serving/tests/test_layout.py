"""tp and dp chosen from model and GPUs, or checked when given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from atropos_serving.layout import Room, plan_layout
from atropos_serving.modelinfo import ModelInfo, find_model, model_info, read_model

from atropos_cli.sdk import UsageError
from atropos_cli.sdk.launchers import LaunchError

QWEN3_8B = {
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
QWEN3_30B_A3B = {
    **QWEN3_8B,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_experts": 128,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
}
LLAMA_405B = ModelInfo("Llama-3.1-405B", 128, 8, 126, 811_000_000_000, 516_096, 131072)
EIGHT = model_info(QWEN3_8B, "Qwen/Qwen3-8B")
ODD = ModelInfo("SmolLM2-135M", 9, 3, 30, 269_000_000, 23040, 8192)


def test_sizes_worked_out_from_config() -> None:
    assert EIGHT.weights == pytest.approx(2 * 8.19e9, rel=0.01)
    assert EIGHT.kv_bytes == 2 * 2 * 36 * 8 * 128
    assert model_info(QWEN3_30B_A3B, "m").weights == pytest.approx(2 * 30.5e9, rel=0.01)
    quantised = model_info({**QWEN3_8B, "quantization_config": {"bits": 4, "quant_method": "awq"}}, "m")
    assert quantised.weights < EIGHT.weights / 3
    vision = model_info({"architectures": ["X"], "text_config": QWEN3_8B}, "m")
    assert (vision.heads, vision.weights) == (32, EIGHT.weights)


@pytest.mark.parametrize(
    ("model", "room", "tp", "dp"),
    [
        (EIGHT, Room(1, 8, 81559), 1, 8),
        (EIGHT, Room(1, 8, 16384), 2, 4),  # 16 GB of weights on 16 GB GPUs
        (EIGHT, Room(2, 4, 81559), 1, 8),
        (model_info(QWEN3_30B_A3B, "m"), Room(1, 4, 81920), 2, 2),
        (LLAMA_405B, Room(4, 8, 81559), 16, 2),  # over two nodes each
        (LLAMA_405B, Room(1, 8, 183359), 8, 1),
        (ODD, Room(1, 8, 16384), 1, 8),
        (None, Room(1, 8, 81559), 8, 1),
        (None, Room(2, 6, 81559), 4, 2),
    ],
)
def test_chosen(model: ModelInfo | None, room: Room, tp: int, dp: int) -> None:
    found = plan_layout(room, model)
    assert (found.tp, found.dp) == (tp, dp)
    used = [(node, gpu) for part in found.slices for node, gpus in part.parts for gpu in gpus]
    assert len(used) == len(set(used)) == tp * dp
    assert all(node < room.nodes and gpu < room.gpus_per_node for node, gpu in used)


def test_given_sizes_are_kept() -> None:
    assert plan_layout(Room(1, 8, 81559), EIGHT, tp=4).dp == 2
    assert plan_layout(Room(1, 8, 81559), EIGHT, dp=2).tp == 4
    assert plan_layout(Room(1, 8, 81559), EIGHT, dp=3).tp == 2
    one = plan_layout(Room(1, 8, 81559), EIGHT, tp=2, dp=1)
    assert one.slices[0].parts == ((0, (0, 1)),)
    assert one.notes == ("6 of 8 GPUs stay idle",)


@pytest.mark.parametrize(
    ("room", "sizes", "said"),
    [
        (Room(1, 8, 81559), {"tp": 3}, "does not divide"),
        (Room(1, 8, 81559), {"tp": 16}, "there are 8"),
        (Room(2, 4, 81559), {"tp": 6}, "multiple of the 4"),
        (Room(1, 8, 81559), {"dp": 9}, "at least 9"),
        (Room(1, 8, 81559), {"tp": 4, "dp": 3}, "hold 2"),
        (Room(1, 0), {"tp": 2}, "needs 2 GPUs"),
    ],
)
def test_impossible_sizes(room: Room, sizes: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan_layout(room, EIGHT, **sizes)


def test_a_model_that_cannot_fit_says_the_figures() -> None:
    with pytest.raises(LaunchError, match=r"811\.0 GB of weights \(estimated\) on 8 GPUs is 101\.4 GB each"):
        plan_layout(Room(1, 8, 81559), LLAMA_405B)
    tried = plan_layout(Room(1, 8, 81559), LLAMA_405B, tp=8)  # the user insists
    assert "little room" in tried.notes[0]


def test_without_gpus_one_server_per_node() -> None:
    assert len(plan_layout(Room(1, 0), ODD).slices) == 1
    assert [part.parts[0][0] for part in plan_layout(Room(2, 0), ODD).slices] == [0, 1]


def test_models_are_found_in_a_folder_and_in_the_hub_cache(tmp_path: Path) -> None:
    env = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    snapshot = tmp_path / "hub" / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(QWEN3_8B))
    (snapshot / "model-00001-of-00002.safetensors").write_bytes(b"12345")
    (snapshot / "model-00002-of-00002.safetensors").write_bytes(b"67")
    assert find_model("org/name", env) == snapshot  # no refs: any snapshot
    (tmp_path / "hub" / "models--org--name" / "refs").mkdir()
    (tmp_path / "hub" / "models--org--name" / "refs" / "main").write_text("abc")
    assert find_model("org/name", env) == snapshot
    assert find_model("org/other", env) is None
    assert find_model(str(snapshot), env) == snapshot
    info = read_model(snapshot, "org/name")
    assert info is not None
    assert (info.weights, info.exact, info.heads) == (7, True, 32)
    (snapshot / "config.json").write_text("[1]")
    assert read_model(snapshot, "org/name") is None
