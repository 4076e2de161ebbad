"""Files of every format go through sft-gen and dpo-gen: rows, or a reason, and never a traceback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import case_tables
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "datasets" / "convert"))

from convert_support import CHATML, TEMPLATES, make_tokenizer

FILES = case_tables.data_files()

SFT_ROWS = {
    "atropos.jsonl": 3,
    "dpo_messages.jsonl": 2,
    "dpo_sharegpt.json": 4,
    "gsm8k_solutions.jsonl": 4,
    "math_replies.jsonl": 4,
    "messages_tools.jsonl": 3,
    "sharegpt.json": 6,
    "sharegpt_tools.json": 6,
    "swe_history.json": 1,
    "swe_trajectory.json": 1,
    "tau.jsonl": 4,
    "transcripts.jsonl": 2,
    "atropos_rollouts/rubiks_process_results_32.jsonl": 6,
    "dpo_pairs/dpo_en_demo_first150.json": 150,
    "dpo_pairs/v1_dpo_demo.jsonl": 10,
    "gsm8k/example_model_solutions_first300.jsonl": 300,
    "math_rollouts/math_cot_100.jsonl": 100,
    "sharegpt_fastchat/dummy_conversation.json": 500,
    "sharegpt_toolcalls/glaive_toolcall_en_demo.json": 300,
    "sharegpt_toolcalls/reason_tool_use_demo_50.jsonl": 50,
    "swe_agent_traj/function_calling_simple.json": 1,
    "swe_agent_traj/humanevalfix-python-0_text_actions.json": 1,
    "swe_agent_traj/marshmallow-1867_function_calling_replace.json": 1,
    "tau_bench/gpt-4o-airline_14tasks_x4trials.jsonl": 53,  # three of 56 met the limit of steps
    "textworld/transcripts.jsonl": 10,
}
"""Files with conversations: how many rows each gives. The others hold tasks without answers."""

PAIRS = {
    "atropos.jsonl": 2,
    "dpo_messages.jsonl": 2,
    "dpo_sharegpt.json": 4,
    "gsm8k_solutions.jsonl": 4,
    "math_replies.jsonl": 4,
    "transcripts.jsonl": 1,
    "atropos_rollouts/rubiks_process_results_32.jsonl": 2,
    "dpo_pairs/dpo_en_demo_first150.json": 150,
    "dpo_pairs/v1_dpo_demo.jsonl": 10,
    "gsm8k/example_model_solutions_first300.jsonl": 157,
    "math_rollouts/math_cot_100.jsonl": 10,
}


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("chatml"))
    make_tokenizer(CHATML).save_pretrained(folder)
    return folder


def run(cli: Any, *args: str) -> int:
    got = cli(*args, "--json")
    assert "Traceback" not in got.stderr
    if got.code == 0:
        rows: int = got.json["rows"]
        return rows
    assert got.code in (1, 6), got.stderr
    assert "error: " in got.stderr
    return 0


@pytest.mark.parametrize("name", FILES)
def test_sft_gen(cli: Any, name: str) -> None:
    assert run(cli, "sft-gen", str(FILES[name]), "-o", "o.jsonl") == SFT_ROWS.get(name, 0)
    assert Path("o.jsonl").exists() is (name in SFT_ROWS)


@pytest.mark.parametrize("name", [name for name in FILES if name in SFT_ROWS])
@pytest.mark.parametrize("template", ["hermes", "qwen3"])
def test_tokens_of_real_conversations(cli: Any, name: str, template: str, chatml: str) -> None:
    options = ("--format", "tokens", "--retokenize", "--tokenizer", chatml)
    options = (*options, "--chat-template", str(TEMPLATES / f"{template}.jinja"))
    made = run(cli, "sft-gen", str(FILES[name]), "-o", "o.jsonl", *options)
    assert made > 0
    for line in Path("o.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert len(row["input_ids"]) == len(row["labels"])
        assert any(label != -100 for label in row["labels"])
        assert row["labels"][0] == -100


@pytest.mark.parametrize("name", FILES)
def test_dpo_gen(cli: Any, name: str) -> None:
    assert run(cli, "dpo-gen", str(FILES[name]), "-o", "o.jsonl", "--group") == PAIRS.get(name, 0)
    assert Path("o.jsonl").exists() is (name in PAIRS)
