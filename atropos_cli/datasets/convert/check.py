"""Errors in finished training rows: {input_ids, labels} (or completion_mask, assistant_masks), {text}."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.datasets.convert.tokenizers import Tokens
from atropos_cli.domain.tokendata import ids_fault, is_binary
from atropos_cli.io.records import Row

_MASKS = ("assistant_masks", "completion_mask")
FAULTS = (
    "no_tokens",
    "no_token_ids",
    "lengths_differ",
    "labels_differ",
    "odd_mask",
    "nothing_trained",
    "first_token_trained",
    "doubled_bos",
)
"""Findings that are faults in any data set."""


@dataclass(slots=True)
class CheckReport:
    """rows_ending_in_an_end_token: the last trained token is a special one, so a model learns to stop there."""

    rows: int = 0
    tokens: int = 0
    trained: int = 0
    longest: int = 0
    ended: int = 0
    found: Counter[str] = field(default_factory=Counter)

    @property
    def faults(self) -> int:
        return sum(self.found[name] for name in FAULTS)

    def as_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "tokens": self.tokens,
            "trained_tokens": self.trained,
            "longest": self.longest,
            "rows_ending_in_an_end_token": self.ended,
            "found": dict(+self.found),
        }


class RowCheck:
    """Looks at rows one by one; `report` grows."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self.report = CheckReport()

    def see(self, row: Row) -> list[str]:
        """The errors of a row."""
        self.report.rows += 1
        found = self._text(row["text"]) if isinstance(row.get("text"), str) else self._ids(row)
        self.report.found.update(found)
        return found

    def _text(self, text: str) -> list[str]:
        bos = self._tokens.bos
        count = self._tokens.count(text)
        self.report.tokens += count
        self.report.longest = max(self.report.longest, count)
        if bos and (text.startswith(bos + bos) or (self._tokens.adds_bos and text.startswith(bos))):
            return ["doubled_bos"]  # a trainer's tokenizer writes its own before it
        return []

    def _ids(self, row: Row) -> list[str]:
        ids = row.get("input_ids")
        if not isinstance(ids, list) or not ids:
            return ["no_tokens"]
        if ids_fault(ids) is not None:
            return ["no_token_ids"]
        report, tokens = self.report, self._tokens
        report.tokens += len(ids)
        report.longest = max(report.longest, len(ids))
        found = ["doubled_bos"] if tokens.bos_id is not None and ids[:2] == [tokens.bos_id] * 2 else []
        labels = row.get("labels")
        mask = next((row[name] for name in _MASKS if isinstance(row.get(name), list)), None)
        if isinstance(labels, list):
            if len(labels) != len(ids):
                return [*found, "lengths_differ"]
            if any(
                type(label) is not int or label not in (-100, ident) for ident, label in zip(ids, labels, strict=True)
            ):
                found.append("labels_differ")
            mask = [label != -100 for label in labels]
        if mask is None:
            return [*found, "no_mask"]
        if len(mask) != len(ids):
            return [*found, "lengths_differ"]
        if not is_binary(mask):
            return [*found, "odd_mask"]
        last = max((i for i, trained in enumerate(mask) if trained), default=None)
        if last is None:
            return [*found, "nothing_trained"]
        if mask[0]:
            found.append("first_token_trained")
        report.trained += sum(map(bool, mask))
        if ids[last] in tokens.special_ids or ids[last] in tokens.eos_ids:
            report.ended += 1
        else:
            found.append("no_end_token")
        return found
