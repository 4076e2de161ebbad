"""Stored data as a trainer wants it: groups to learn from, or rows for SFT and DPO.

Run folders and any format of rollouts are converted on the way; rows that are in the trainer's own shape
already (what sft-gen and dpo-gen write, or any data set of that shape) pass through as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.errors import DataError
from atropos_cli.io.readers import ReadLog, ReadOptions, read_objects, read_records
from atropos_cli.io.sources import Source, find_sources

_SFT = ({"input_ids", "labels"}, {"messages"}, {"prompt", "completion"}, {"text"}, {"conversations"})
_DPO = ({"chosen", "rejected"},)
_LOOKED_AT = 20


def stored_groups(paths: Sequence[str]) -> Iterator[ScoredGroup]:
    """The groups of run folders and rollout files, in order. Raises DataError."""
    for record in read_records(_sources(paths)):
        yield ScoredGroup.model_validate(record.to_native())


def stored_rows(paths: Sequence[str], method: Literal["sft", "dpo"]) -> Iterator[JsonDict]:
    """Rows for the method; rollouts become rows by the defaults of sft-gen and dpo-gen. Raises DataError."""
    for source in _sources(paths):
        if _is_rows(source, method):
            for item in read_objects(source, ReadOptions(), ReadLog()):
                yield item.value
        else:
            yield from _converted(source, method)


def prompt_rows(paths: Sequence[str]) -> Iterator[JsonDict]:
    """Rows that hold at least a prompt, for `train grpo --data`. Raises DataError for a row without one."""
    for source in _sources(paths):
        for item in read_objects(source, ReadOptions(), ReadLog()):
            if "prompt" not in item.value:
                keys = ", ".join(list(item.value)[:8]) or "none"
                raise DataError(
                    f"{source.name}:{item.number} has no prompt (its keys: {keys})",
                    hint="rows need `prompt`, and what the rewards look at, e.g. `answer`",
                )
            yield item.value


def _sources(paths: Sequence[str]) -> list[Source]:
    if "-" in paths:
        raise DataError("standard input cannot be trained on: it can be read once only", hint="give a file")
    return find_sources(paths)


def _is_rows(source: Source, method: Literal["sft", "dpo"]) -> bool:
    """Are these the trainer's own rows? Rollouts have `rollouts`, or scores beside their tokens."""
    shapes = _SFT if method == "sft" else _DPO
    for item in itertools.islice(read_objects(source, ReadOptions(), ReadLog()), _LOOKED_AT):
        keys = set(item.value)
        if "rollouts" in keys or {"tokens", "scores"} <= keys:
            return False
        return any(shape <= keys for shape in shapes)
    return False


def _converted(source: Source, method: Literal["sft", "dpo"]) -> Iterator[JsonDict]:
    if method == "sft":
        from atropos_cli.engine.convert.sft import SftConverter, SftOptions

        make = SftConverter(SftOptions()).rows
    else:
        from atropos_cli.engine.convert.dpo import PairConverter, PairOptions

        make = PairConverter(PairOptions()).rows
    for record in read_records([source]):
        yield from make(record)
