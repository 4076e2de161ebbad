from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class SequenceNode(BaseModel):
    full_text: str
    tokens: list[int]
    masked_tokens: list[int]
    logprobs: list[float]
    metadata: dict[str, Any] | None = None
