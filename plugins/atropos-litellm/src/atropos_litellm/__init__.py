"""Manifest of atropos-litellm: the inference backend `litellm`. Imports nothing heavy.

atropos gen ENV --backend litellm --model anthropic/claude-sonnet-4-5
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_backends() -> Iterable[ComponentSpec]:
    """Offer the backend `litellm`."""
    return [
        ComponentSpec(
            kind="backend",
            name="litellm",
            target="atropos_litellm.backend:LitellmBackend",
            summary="Anthropic, Gemini, Bedrock and other providers, through litellm.",
            requires=("litellm",),
            extra="litellm",
        )
    ]


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Is litellm installed? Reads metadata only."""
    try:
        yield ("litellm: litellm", "ok", version("litellm"))
    except PackageNotFoundError:
        yield ("litellm: litellm", "info", "not installed: pip install 'atropos-litellm[litellm]'")
