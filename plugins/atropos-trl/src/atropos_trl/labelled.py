"""Rows for KTO, checked before TRL sees them.

{"prompt", "completion", "label"}    texts or lists of messages, and true or false

Rows with tools or tool calls become texts here, for the reason that pairs do (`preferences`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.sdk import DataError, JsonDict
from atropos_cli.sdk.training import is_cut

from .preferences import as_texts, calls, check_side, length_of

_WANTED = "rows need prompt, completion and label: atropos dpo-gen --kto makes them from rollouts"
_SIDES = ("completion",)


@dataclass
class Labelled:
    """Completions ready for the trainer, and counts of those left out."""

    rows: list[JsonDict] = field(default_factory=list)
    too_long: int = 0
    cut: int = 0
    """The completion was cut off: TRL writes an end token behind it."""
    good: int = 0


def labelled(rows: Iterable[JsonDict], tokenizer: object, *, max_length: int | None) -> Labelled:
    """Raises DataError for a row of another shape, and when no row is left or all have one label."""
    found = Labelled()
    seen = 0
    for number, row in enumerate(rows, start=1):
        seen = number
        sides = check_side(row, number, ("prompt", *_SIDES), tokenizer, hint=_WANTED)
        if not isinstance(row.get("label"), bool):
            raise DataError(f"row {number}: 'label' is neither true nor false", hint=_WANTED)
        try:
            if row.get("tools") or calls(sides):
                sides = as_texts(sides, row.get("tools"), tokenizer, _SIDES)
            length = length_of(sides, tokenizer, _SIDES)
        except ValueError as error:
            raise DataError(f"row {number} cannot be trained on: {error}", hint=_WANTED) from error
        completion: Any = sides["completion"]
        if isinstance(completion, list) and any(is_cut(message) for message in completion):
            found.cut += 1
        elif max_length is not None and length > max_length:
            found.too_long += 1
        else:
            found.rows.append({**sides, "label": row["label"]})
            found.good += int(row["label"] is True)
    if not found.rows:
        raise DataError(
            f"none of {seen} completions can be trained on: {found.too_long} are longer than {max_length} tokens, "
            f"{found.cut} were cut off"
            if seen
            else "the data have no completion to train on",
            hint=_WANTED,
        )
    if found.good in (0, len(found.rows)):
        raise DataError(
            f"all {len(found.rows)} completions have the same label: KTO compares good ones with bad ones",
            hint="dpo-gen --kto --threshold X sets from which score on a completion is good",
        )
    return found
