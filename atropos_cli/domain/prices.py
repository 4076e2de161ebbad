"""What tokens cost: prices by model, and the money that a request's tokens come to."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from atropos_cli.domain.base import Frozen

PER = 1_000_000
"""Prices are per so many tokens."""
CURRENCY = "currency"


class TokenUsage(Frozen):
    """The tokens that a server billed for one request, all its samples together; None: it did not say.

    cached_tokens are among the prompt's, reasoning_tokens among the completion's. cost: in `currency`, where the
    backend knows what the request came to.
    """

    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
    cached_tokens: int | None = Field(default=None, ge=0)
    reasoning_tokens: int | None = Field(default=None, ge=0)
    cost: float | None = Field(default=None, ge=0)


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a price is a number")
    return value


_Money = Annotated[float, BeforeValidator(_no_switch), Field(ge=0)]


class Price(Frozen):
    """Money for a million tokens of each kind. cached_input and reasoning: None costs as much as input and output."""

    input: _Money
    output: _Money
    cached_input: _Money | None = None
    reasoning: _Money | None = None

    def of(self, usage: TokenUsage) -> float:
        """What a request came to. Counts that the server left out are taken as none."""
        prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
        cached = min(usage.cached_tokens or 0, prompt)
        reasoning = min(usage.reasoning_tokens or 0, completion)
        cached_input = self.input if self.cached_input is None else self.cached_input
        thought = self.output if self.reasoning is None else self.reasoning
        paid = (prompt - cached) * self.input + cached * cached_input
        return (paid + (completion - reasoning) * self.output + reasoning * thought) / PER

    def most(self, prompt_tokens: int, completion_tokens: int) -> float:
        """The most that so many tokens can come to."""
        dearest = max(self.input, self.cached_input or 0.0), max(self.output, self.reasoning or 0.0)
        return (prompt_tokens * dearest[0] + completion_tokens * dearest[1]) / PER


class PriceTable(Frozen):
    """Prices by model. A key is a model's name, or a pattern with * and ? in it."""

    currency: str = Field(default="USD", min_length=1, max_length=12, pattern=r"^[^\s\x00-\x1f]+$")
    models: dict[str, Price] = Field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> PriceTable:
        """The table of a file: `currency`, and a section for each model. Raises ValueError (pydantic's)."""
        models = {str(name): price for name, price in table.items() if name != CURRENCY}
        return cls.model_validate({"models": models, **({CURRENCY: table[CURRENCY]} if CURRENCY in table else {})})

    def find(self, model: str | None) -> Price | None:
        """The price of a model: by its name, else by the pattern that says most about it; None without one."""
        if model is None:
            return None
        if (exact := self.models.get(model)) is not None:
            return exact
        fitting = [pattern for pattern in self.models if fnmatchcase(model, pattern)]
        return self.models[max(fitting, key=_said)] if fitting else None


def _said(pattern: str) -> tuple[int, str]:
    return len(pattern.replace("*", "").replace("?", "")), pattern
