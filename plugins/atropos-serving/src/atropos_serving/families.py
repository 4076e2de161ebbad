"""Which tool-call parser and which reasoning parser fit a model: by its name, as models are named on the hub.

The first row that matches wins. A parser that is wrong for the model loses tool calls in silence, so a model
that is not in the table gets none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from atropos_cli.sdk.serving import Engine


@dataclass(frozen=True, slots=True)
class Parsers:
    """Names as the engines know them; None: no parser."""

    tool: str | None = None
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """pattern: found in the lower-case name of the model."""

    pattern: str
    sglang: Parsers
    vllm: Parsers


FAMILIES = (
    Family(r"qwen3[-_. ]?coder", Parsers("qwen3_coder"), Parsers("qwen3_coder")),
    Family(r"qwen3.*thinking", Parsers("qwen25", "qwen3-thinking"), Parsers("hermes", "qwen3")),
    Family(r"qwen3.*instruct", Parsers("qwen25"), Parsers("hermes")),
    Family(r"qwen3(?!\.)", Parsers("qwen25", "qwen3"), Parsers("hermes", "qwen3")),
    Family(r"qwq", Parsers("qwen25", "deepseek-r1"), Parsers("hermes", "deepseek_r1")),
    Family(r"qwen-?2(\.5)?", Parsers("qwen25"), Parsers("hermes")),
    Family(r"hermes-?[234]", Parsers("hermes"), Parsers("hermes")),
    Family(r"gpt-oss", Parsers("gpt-oss", "gpt-oss"), Parsers("openai", "openai_gptoss")),
    Family(r"deepseek-r1-distill", Parsers(None, "deepseek-r1"), Parsers(None, "deepseek_r1")),
    Family(r"deepseek-r1", Parsers("deepseekv3", "deepseek-r1"), Parsers("deepseek_v3", "deepseek_r1")),
    Family(r"deepseek-v3[._]2", Parsers("deepseekv32", "deepseek-v3"), Parsers("deepseek_v32", "deepseek_v3")),
    Family(r"deepseek-v3[._]1", Parsers("deepseekv31", "deepseek-v3"), Parsers("deepseek_v31", "deepseek_v3")),
    Family(r"deepseek-v3", Parsers("deepseekv3"), Parsers("deepseek_v3")),
    Family(r"llama-?4", Parsers("pythonic"), Parsers("llama4_pythonic")),
    Family(r"llama-?3[._]?[123]", Parsers("llama3"), Parsers("llama3_json")),
    Family(r"magistral", Parsers("mistral", "mistral"), Parsers("mistral", "mistral")),
    Family(r"mistral|mixtral|ministral|devstral", Parsers("mistral"), Parsers("mistral")),
    Family(r"kimi-?k2", Parsers("kimi_k2"), Parsers("kimi_k2")),
    Family(r"glm-?4[._]7", Parsers("glm47", "glm45"), Parsers("glm47", "glm47")),
    Family(r"glm-?4[._][56]", Parsers("glm45", "glm45"), Parsers("glm45", "glm45")),
    Family(r"minimax-?m2", Parsers("minimax-m2", "minimax"), Parsers("minimax_m2", "minimax_m2")),
    Family(r"gemma-?4", Parsers("gemma4", "gemma4"), Parsers("gemma4", "gemma4")),
    Family(r"seed-?oss", Parsers(), Parsers("seed_oss", "seed_oss")),
    Family(r"phi-?4-mini", Parsers(), Parsers("phi4_mini_json")),
    Family(r"granite-?4", Parsers(), Parsers("granite4")),
    Family(r"granite-?3", Parsers(), Parsers("granite")),
    Family(r"olmo-?3", Parsers(), Parsers("olmo3", "olmo3")),
    Family(r"lfm-?2", Parsers("lfm2"), Parsers("lfm2")),
)


def parsers_for(model: str, engine: Engine) -> Parsers:
    """The parsers of the model's family. model: a name or a path; its last parts count."""
    name = "/".join(model.rstrip("/").split("/")[-2:]).lower()
    for family in FAMILIES:
        if re.search(family.pattern, name):
            return family.sglang if engine == "sglang" else family.vllm
    return Parsers()
