"""Verifiable rewards for atropos: answers, formats, lengths, and their combinations.

This module is the plugin's manifest. It imports nothing heavy; each reward is imported on first use.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl

_ANSWERS = [
    ("gsm8k", "answers:gsm8k", "Final number right, found by flexible rules."),
    ("gsm8k_strict", "answers:gsm8k_strict", "Final number right, after '#### ' as in GSM8K."),
    ("choice", "textual:choice", "The letter of a multiple-choice answer."),
    ("exact", "textual:exact", "The final answer is the gold text, case and spacing aside."),
    ("regex", "textual:regex", "The reply matches task.info['pattern']."),
    ("json_schema", "textual:json_schema", "The reply is JSON that satisfies task.info['schema']."),
    ("think_answer_format", "layout:think_answer_format", "<think> then <answer>, once each, nothing around."),
    ("think_format", "layout:think_format", "One closed <think> block, then a reply."),
    ("length_penalty", "shaping:length_penalty", "0 up to 1024 tokens, down to -1 at 2048."),
    ("repetition_penalty", "shaping:repetition_penalty", "-1 times the share of repeated 4-grams."),
    ("soft_overlong", "shaping:soft_overlong", "DAPO's penalty for the last 4096 of 20480 tokens."),
]


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """All rewards of this plugin, by name."""
    for name, target, summary in _ANSWERS:
        extra = {"requires": ("jsonschema",), "extra": "schema"} if name == "json_schema" else {}
        yield ComponentSpec("reward", name, f"atropos_verify.{target}", summary, **extra)  # type: ignore[arg-type]
    for name, summary in (
        ("math", "Final answer equals the gold answer, symbolically."),
        ("answer", "As gsm8k when the gold answer is a plain number, else as math."),
    ):
        yield ComponentSpec(
            "reward", name, f"atropos_verify.symbolic:{name}", summary, requires=("math-verify",), extra="math"
        )


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Whether the optional packages are there."""
    for package, extra in (("math_verify", "math"), ("jsonschema", "schema")):
        if importlib.util.find_spec(package) is None:
            yield (f"atropos-verify[{extra}]", "info", f"not installed: pip install 'atropos-verify[{extra}]'")
        else:
            yield (f"atropos-verify[{extra}]", "ok", f"{package} is installed")
