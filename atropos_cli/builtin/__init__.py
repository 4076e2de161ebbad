"""The components that come with atropos, registered by the same hooks as anybody's plugin. Imports none of them."""

from __future__ import annotations

from collections.abc import Iterator

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_backends() -> Iterator[ComponentSpec]:
    yield ComponentSpec(
        "backend",
        "openai",
        "atropos_cli.builtin.openai.backend:OpenAIBackend",
        summary="Any OpenAI-compatible server: SGLang, vLLM, llama.cpp, hosted APIs.",
    )
    yield ComponentSpec(
        "backend",
        "scripted",
        "atropos_cli.builtin.scripted:ScriptedBackend",
        summary="Replies from a script, without a model: for tests, examples and dry runs.",
    )


@hookimpl
def atropos_register_environments() -> Iterator[ComponentSpec]:
    yield ComponentSpec(
        "environment",
        "mix",
        "atropos_cli.rollout.mixture:Mixture",
        summary="Several environments with weights: --of ENV:weight=2 --of NAME=ENV:option=value.",
    )


@hookimpl
def atropos_register_writers() -> Iterator[ComponentSpec]:
    yield ComponentSpec(
        "writer", "jsonl", "atropos_cli.io.groupfile:JsonlWriter", summary="One JSON line per group; can resume."
    )
    yield ComponentSpec(
        "writer",
        "jsonl.zst",
        "atropos_cli.io.groupfile:ZstWriter",
        summary="The same lines, compressed with Zstandard.",
        requires=("zstandard",),
        extra="zst",
    )
    yield ComponentSpec(
        "writer", "stdout", "atropos_cli.io.groupfile:StdoutWriter", summary="One JSON line per group, to stdout."
    )


@hookimpl
def atropos_register_rewards() -> Iterator[ComponentSpec]:
    summaries = {
        "exact_match": "1.0 when the reply is the task's answer, else 0.0.",
        "contains_answer": "1.0 when the reply contains the task's answer as whole words, else 0.0.",
        "numeric_match": "1.0 when the last number of the reply equals the task's answer, else 0.0.",
        "length": "Number of completion tokens; weight 0 unless one is given.",
    }
    for name, summary in summaries.items():
        yield ComponentSpec("reward", name, f"atropos_cli.builtin.rewards:{name}", summary=summary)
