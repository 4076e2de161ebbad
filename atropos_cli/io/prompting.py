"""The builder of prompts (io.formats.prompts) as plugins see it: a row and a field in, messages out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.prompts import HISTORY, MATTER, SYSTEM, prompt_of

_BESIDE = (*MATTER, "input")
PROMPT_PARTS = (*SYSTEM, *HISTORY, *_BESIDE)
"""Fields of a row that are part of its prompt, beside the field that asks."""


def whole_prompt(row: JsonDict, name: str, value: Any, without: Collection[str] = ()) -> tuple[Message, ...]:
    """What a row asks: `value`, which stands in the field `name`, with what stands beside it and is not in `without`.

    value: text, messages of any dialect, or the JSON text of such. Raises ValueError with words that name the field.
    """
    parts = {key: row[key] for key in PROMPT_PARTS if key != name and key not in without and row.get(key)}
    parts = {key: part for key, part in parts.items() if key not in _BESIDE or isinstance(part, str)}
    asked = name if name in _BESIDE else "prompt"
    try:
        return tuple(Message.model_validate(message) for message in prompt_of({**parts, asked: value}))
    except RowError as error:
        if not error.field.startswith(asked):
            raise ValueError(str(error)) from None
        kind = "a list of messages" if isinstance(value, list) else "clear"
        raise ValueError(f"the prompt is not {kind}: {str(error).replace(asked, name, 1)}") from None
    except ValidationError as error:
        raise ValueError(f"the prompt is not a list of messages: {error.errors()[0]['msg']}") from None
