"""Files that hold a whole model, as GGUF files do. A plugin that reads a format implements ModelFile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any


class ModelFile(ABC):
    """One such file. Only its header is read until more is asked for; all methods raise ConfigError.

    context: tokens that the model can see, parameters: their number; None where the file does not say.
    """

    context: int | None = None
    parameters: int | None = None

    @abstractmethod
    def tokenizer(self) -> Any:
        """Its tokenizer, as transformers has it."""

    @abstractmethod
    def folder(self) -> Path:
        """A folder with the same model that transformers can load; made and kept the first time."""
