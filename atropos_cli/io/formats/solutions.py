"""Rows with a question and several stored solutions, as evaluation harnesses write them.

{question, response: [text, ...], score: [...], answer?}         parallel lists
{question, ground_truth, NAME: {solution, is_correct}, ...}      one object for each solver
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_cli.domain.finish import finish_in
from atropos_cli.io.formats.common import (
    Format,
    RowError,
    cut_history,
    expect_list,
    finish_at,
    new_record,
    read_score,
    side_fields,
)
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Attempt, Message, Record, Row

_LISTS = ("response", "responses", "completions", "generations", "outputs")
_QUESTIONS = ("question", "problem", "prompt", "query", "instruction", "input")
_SCORES = ("scores", "score", "rewards", "is_correct", "correct")
_STRUCTURE = frozenset((*_LISTS, *_SCORES, "system"))


def matches(raw: Row) -> bool:
    return _question(raw) is not None and (_list_key(raw) is not None or bool(solvers(raw)))


def read(raw: Row, source: str, line: int) -> Record:
    """A Record with one attempt for each solution. Raises RowError."""
    prompt: list[Message] = [{"role": "user", "content": _question(raw)}]
    if isinstance(raw.get("system"), str) and raw["system"]:
        prompt.insert(0, {"role": "system", "content": raw["system"]})
    record = new_record(raw, "solutions", source, line)
    key = _list_key(raw)
    if key is None:
        names = solvers(raw)
        record.info = {name: value for name, value in raw.items() if name not in names}
        for i, name in enumerate(names):
            solver = raw[name]
            _add(record, prompt, solver["solution"], solver.get("score", solver["is_correct"]), f"{name}.score", i)
            record.attempts[i].finish_reason = finish_in(solver)
        record.cut = _cut_solvers
        return record
    texts = expect_list(raw[key], key)
    score_key = score_field(raw)
    scores = raw[score_key] if score_key is not None else [None] * len(texts)
    if len(scores) != len(texts):
        raise RowError(str(score_key), f"{len(texts)} entries, as many as {key}", str(len(scores)))
    record.info = side_fields(raw, _STRUCTURE)
    for i, (text, score) in enumerate(zip(texts, scores, strict=True)):
        if not isinstance(text, str):
            raise RowError(f"{key}[{i}]", "text", kind_of(text))
        _add(record, prompt, text, score, f"{score_key}[{i}]", i)
        record.attempts[i].finish_reason = finish_at(raw, i, len(texts))
    record.cut = _cut_lists
    return record


def _add(record: Record, prompt: list[Message], text: str, score: Any, field: str, index: int) -> None:
    value, odd = read_score(score, field)
    if odd:
        record.non_finite.append(index)
    record.attempts.append(
        Attempt(
            messages=[*prompt, {"role": "assistant", "content": text}],
            score=value,
            raw=record.raw,
            index=index,
            prompt_length=len(prompt),
        )
    )


def _question(raw: Row) -> str | None:
    return next((raw[key] for key in _QUESTIONS if isinstance(raw.get(key), str)), None)


def _list_key(raw: Row) -> str | None:
    for key in _LISTS:
        value = raw.get(key)
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return key
    return None


def score_field(raw: Row) -> str | None:
    """The field that holds a list of scores."""
    return next((name for name in _SCORES if isinstance(raw.get(name), list)), None)


def solvers(raw: Row) -> list[str]:
    """Fields that hold one solver's {solution, is_correct}; empty when the solutions stand in a list."""
    if _list_key(raw) is not None:
        return []
    return [
        name
        for name, value in raw.items()
        if isinstance(value, dict) and isinstance(value.get("solution"), str) and "is_correct" in value
    ]


def _cut_lists(record: Record, kept: Sequence[Attempt]) -> list[Row]:
    count = len(record.attempts)
    raw = {
        key: [value[attempt.index] for attempt in kept]
        if isinstance(value, list) and len(value) == count and key != "score_history"
        else value
        for key, value in record.raw.items()
    }
    cut_history(raw, kept, count)
    return [raw]


def _cut_solvers(record: Record, kept: Sequence[Attempt]) -> list[Row]:
    names = solvers(record.raw)
    wanted = {names[attempt.index] for attempt in kept}
    raw = {key: value for key, value in record.raw.items() if key not in names or key in wanted}
    cut_history(raw, kept, len(names))
    return [raw]


FORMAT = Format(
    "solutions", True, matches, read, "a question with solutions: {question, response: [...], score: [...]}"
)
