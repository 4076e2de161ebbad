"""Manifest of atropos-vllm: the inference backend `vllm`. Imports nothing heavy.

atropos gen ENV --backend vllm --model M                  vLLM in this process, no server
atropos train grpo --env ENV --backend vllm --model M     beside the trainer, with its weights
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from atropos_cli.sdk import ComponentSpec, hookimpl

REQUIRES = ("vllm", "torch", "transformers")


@hookimpl
def atropos_register_backends() -> Iterable[ComponentSpec]:
    """Offer the backend `vllm`."""
    return [
        ComponentSpec(
            kind="backend",
            name="vllm",
            target="atropos_vllm.backend:VllmBackend",
            summary="vLLM in this process, beside a trainer or alone; takes new weights from memory.",
            requires=REQUIRES,
            extra="vllm",
        )
    ]


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Is vLLM installed? Reads metadata only."""
    try:
        yield ("vllm: vllm", "ok", version("vllm"))
    except PackageNotFoundError:
        yield ("vllm: vllm", "info", "not installed: pip install 'atropos-vllm[vllm]'")
