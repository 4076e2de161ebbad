"""Stored data as a trainer wants it: groups to learn from, or rows of data.

Run folders and any format of rollouts are converted on the way. Rows that are in the trainer's own shape already (what
sft-gen and dpo-gen write, or any data set of that shape) pass through `trainrows`, whatever their scores are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from atropos_cli.datasets.convert.turns import BadMessage
from atropos_cli.datasets.trainrows import has_shape, own_row, with_whole_prompt
from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.group import ScoredGroup
from atropos_cli.domain.methods import Learns
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import ConfigError, DataError
from atropos_cli.io.formats import RowError, detect, read_as
from atropos_cli.io.formats.native import native_group
from atropos_cli.io.formats.trl import COMPLETION
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.readers import ReadLog, ReadOptions, read_objects, read_records
from atropos_cli.io.sources import Source, find_sources
from atropos_cli.io.values import Item

Warn = Callable[[str], None]

_WANTED = {
    "demonstrations": "sft rows have messages, or prompt and completion, or text, or input_ids and labels, or "
    "conversations",
    "pairs": "dpo rows have prompt, chosen and rejected",
    "labelled": "kto rows have prompt, completion, and label: true or false",
    "groups": "rows need `prompt`, and what the rewards look at, e.g. `answer`",
}
_NAMES = {"demonstrations": "sft", "pairs": "dpo", "labelled": "kto"}
_COMMANDS = {"demonstrations": "atropos sft-gen", "pairs": "atropos dpo-gen", "labelled": "atropos dpo-gen --kto"}
_OPTIONS = ReadOptions(switches=False)


def check_data(plan: TrainPlan) -> None:
    """Look at the first row of each file, so that what cannot be trained on is said before a model is loaded.

    Raises DataError, and ConfigError for prompts that nothing would score.
    """
    for source in _sources(plan.data):
        first = _first(source)
        if plan.learns != "groups":
            if has_shape(first.value, plan.learns):
                _own(first, source, plan.learns)
            else:
                _check_rollout(first, source, plan.learns)
        elif not _is_scored(first.value):
            _prompted(first, source)
            if not plan.rewards:
                raise ConfigError(
                    f"{source.name} holds prompts, and no reward is named to score completions with",
                    hint="--reward NAME (atropos reward list)",
                )
        elif plan.rewards and "prompt" in first.value:
            _prompted(first, source)


def stored_groups(paths: Sequence[str], warn: Warn = lambda text: None) -> Iterator[ScoredGroup]:
    """The groups of run folders and rollout files, in order. warn: called about rows left out. Raises DataError."""
    for record in read_records(_sources(paths), _OPTIONS, ReadLog(warn=warn)):
        yield ScoredGroup.model_validate(native_group(record))


def stored_rows(paths: Sequence[str], learns: Learns, warn: Warn = lambda text: None) -> Iterator[JsonDict]:
    """Rows to learn from; rollouts become rows by the defaults of sft-gen and dpo-gen. Raises DataError."""
    for source in _sources(paths):
        first = _first(source)
        if has_shape(first.value, learns):
            for item in _objects(source, warn):
                yield _own(item, source, learns)
        else:
            _check_rollout(first, source, learns)
            yield from _converted(source, learns, warn)


def prompt_rows(paths: Sequence[str], warn: Warn = lambda text: None) -> Iterator[JsonDict]:
    """Rows that hold at least a prompt, for `train grpo --data`. Raises DataError for a row without one."""
    for source in _sources(paths):
        for item in _objects(source, warn):
            yield _prompted(item, source)


def _sources(paths: Sequence[str]) -> list[Source]:
    if "-" in paths:
        raise DataError("standard input cannot be trained on: it can be read once only", hint="give a file")
    if not paths:
        return []
    try:
        return find_sources(paths)
    except DataError as error:
        raise DataError(error.message, hint="give a file, a run folder or a glob in quotes with --data") from error


def _objects(source: Source, warn: Warn) -> Iterator[Item]:
    log = ReadLog(warn=warn)
    yield from read_objects(source, _OPTIONS, log)
    log.close()


def _first(source: Source) -> Item:
    for item in read_objects(source, _OPTIONS, ReadLog()):
        return item
    raise DataError(f"{source.name} holds no rows", hint="give another file with --data")


def _own(item: Item, source: Source, learns: Learns) -> JsonDict:
    if not has_shape(item.value, learns):
        raise _unfit(item, source, learns, "")
    try:
        return own_row(item.value, learns)
    except (RowError, BadMessage) as error:
        raise _unfit(item, source, learns, f": {error}") from error


def _check_rollout(first: Item, source: Source, learns: Learns) -> None:
    """Raises DataError for an unknown format; a completion needs a question too, under whatever name."""
    form = detect(first.value)
    if form is None:
        raise _unfit(first, source, learns, "")
    if form.name != COMPLETION.name:
        return
    try:
        record = read_as(form, first.value, source.name, first.number)
    except RowError as error:
        raise _unfit(first, source, learns, f": {error}") from error
    if not any(rollout.prompt_length for rollout in record.rollouts):
        raise _unfit(first, source, learns, ": a completion without its prompt")


def _is_scored(row: JsonDict) -> bool:
    """Is this a rollout, or a group of them? A reply beside a prompt, without any verdict, is there for the rewards."""
    form = detect(row)
    if form is None or form.name != COMPLETION.name or "prompt" not in row:
        return form is not None
    return any(row.get(name) is not None for name in ("score", "reward", "label"))


def _prompted(item: Item, source: Source) -> JsonDict:
    """The row with its whole prompt. Raises DataError."""
    _check_prompt(item, source)
    try:
        return with_whole_prompt(item.value)
    except RowError as error:
        raise DataError(f"{source.name}:{item.number}: {error}", hint=_WANTED["groups"]) from error


def _check_prompt(item: Item, source: Source) -> None:
    if "prompt" not in item.value:
        raise DataError(f"{source.name}:{item.number} has no prompt (its keys: {_keys(item)})", hint=_WANTED["groups"])
    prompt: Any = item.value["prompt"]
    turns = prompt if isinstance(prompt, list) else None
    if isinstance(prompt, str) or (turns and all(isinstance(turn, dict) and "role" in turn for turn in turns)):
        return
    found = "a list, but not of messages" if turns else kind_of(prompt)
    raise DataError(
        f"{source.name}:{item.number}: its prompt is {found}",
        hint='a prompt is a text, or a list of messages: [{"role": "user", "content": "..."}]',
    )


def _unfit(item: Item, source: Source, learns: Learns, why: str) -> DataError:
    return DataError(
        f"{source.name}:{item.number} is neither a row for {_NAMES[learns]} nor a rollout "
        f"(its keys: {_keys(item)}){why}",
        hint=_WANTED[learns],
    )


def _keys(item: Item) -> str:
    return ", ".join(list(item.value)[:8]) or "none"


def _converted(source: Source, learns: Learns, warn: Warn) -> Iterator[JsonDict]:
    left_out: Counter[str]
    if learns == "demonstrations":
        from atropos_cli.datasets.convert.sft import SftConverter
        from atropos_cli.datasets.convert.spec import SftOptions

        sft = SftConverter(SftOptions())
        make, left_out = sft.rows, sft.report.left_out
    else:
        from atropos_cli.datasets.convert.dpo import PairConverter
        from atropos_cli.datasets.convert.spec import PairOptions

        pairs = PairConverter(PairOptions(kto=learns == "labelled"))
        make, left_out = pairs.rows, pairs.report.left_out_groups
    made = 0
    log = ReadLog(warn=warn)
    for record in read_records([source], _OPTIONS, log):
        for row in make(record):
            made += 1
            yield row
    if not made:
        reasons = left_out + Counter({"unreadable": log.rejected.total()})
        why = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(4)) or "no group has a reward"
        raise DataError(
            f"{source.name} makes no rows for {_NAMES[learns]} (first row has the keys: {_keys(_first(source))}; "
            f"left out: {why})",
            hint=f"{_WANTED[learns]}; {_COMMANDS[learns]} reports why rollouts are left out",
        )
