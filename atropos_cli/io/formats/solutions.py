"""Rows with a question and several stored solutions, as evaluation harnesses and generators write them.

{question, response: [text, ...], score: [...], answer?}         parallel lists
{prompt, completions: [{response, score}, ...]}                  objects; a solution may be a list of messages, too
{problem, generations: [...], correctness_math_verify: [...], messages?}
{question, ground_truth, NAME: {solution, is_correct}, ...}      one object for each solver
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atropos_cli.domain.base import is_value
from atropos_cli.domain.finish import finish_in
from atropos_cli.io.formats.atropos import parallel_keys
from atropos_cli.io.formats.common import (
    Format,
    cut_history,
    finish_at,
    is_dicts,
    new_record,
    read_score,
    role_of,
    side_fields,
)
from atropos_cli.io.formats.errors import RowError
from atropos_cli.io.formats.prompts import KEYS, SYSTEM, dialogue, in_context, prompt_of, replies
from atropos_cli.io.jsonvalue import kind_of
from atropos_cli.io.records import Message, Record, Row, StoredRollout, text_of

_CERTAIN = ("response", "responses", "completions", "generations", "choices")
_POSSIBLE = ("outputs", "samples", "candidates", "predictions", "attempts", "solutions")
"""These may be something else (what tests expect, gold solutions), above all beside another reply."""
_LISTS = (*_CERTAIN, *_POSSIBLE)
_TEXTS = ("text", "response", "completion", "content", "output", "generation", "generated_text", "solution", "message")
"""Where an object of such a list has its text."""
_SCORES = ("scores", "score", "rewards", "reward", "is_correct", "correct", "passed", "ratings", "verified")
_VERDICTS = "correctness"
"""Begins the names of lists with one verifier's verdicts each; the first that says something is the score."""
_ENDS = ("_correct", "_correctness", "_verdicts", "_scores", "_rewards", "_verified")
"""Ends names of such lists, too, if they hold numbers or verdicts and nothing else."""
_OWN_SCORES = ("score", "reward", "is_correct", "correct", "passed", "verified", "overall_score", "rating")
_DIALOGUES = ("messages", "conversations")
_STRUCTURE = frozenset((*_LISTS, *_SCORES, "system", *_DIALOGUES, "finish_reasons"))


def matches(raw: Row) -> bool:
    if "chosen" in raw or "chosen_messages" in raw:
        return False
    asks = not KEYS.isdisjoint(raw) or any(raw.get(key) for key in _DIALOGUES)
    return asks and (_list_key(raw) is not None or bool(solvers(raw)))


def read(raw: Row, source: str, line: int) -> Record:
    """A Record with one rollout for each solution. Raises RowError."""
    record = new_record(raw, "solutions", source, line)
    key = _list_key(raw)
    if key is None:
        names = solvers(raw)
        prompt = prompt_of(raw, without=names, tools=record.tools)
        record.info = {name: value for name, value in raw.items() if name not in names}
        for name in names:
            solver = raw[name]
            reply: list[Message] = [{"role": "assistant", "content": solver["solution"]}]
            _add(record, prompt, reply, solver.get("score", solver["is_correct"]), f"{name}.score")
            record.rollouts[-1].finish_reason = finish_in(solver)
        record.cut = _cut_solvers
        return record
    solutions = [_solution(item, f"{key}[{i}]", record) for i, item in enumerate(raw[key])]
    prompt = _prompt(raw, key, solutions, record)
    verdicts = _verdicts(raw, key)
    record.info = side_fields(raw, _STRUCTURE)
    for i, (reply, own) in enumerate(zip(solutions, raw[key], strict=True)):
        score, field = next(
            ((values[i], f"{name}[{i}]") for name, values in verdicts.items() if values[i] is not None), (None, key)
        )
        if not verdicts and isinstance(own, dict):
            field = next((name for name in _OWN_SCORES if own.get(name) is not None), "score")
            score, field = own.get(field), f"{key}[{i}].{field}"
        # What a solution was told itself stands in its own object.
        told = {name: own[name] for name in SYSTEM if own.get(name)} if isinstance(own, dict) else {}
        _add(record, in_context(prompt, told), reply, score, field)
        rollout = record.rollouts[-1]
        rollout.rewards = {
            name: float(values[i]) for name, values in verdicts.items() if name not in _SCORES and is_value(values[i])
        }
        rollout.finish_reason = _finish(raw, own, i, len(solutions))
    record.cut = _cut_lists
    return record


def _add(record: Record, prompt: list[Message], reply: list[Message], score: Any, field: str) -> None:
    value, odd = read_score(score, field)
    index = len(record.rollouts)
    if odd:
        record.non_finite.append(index)
    record.rollouts.append(
        StoredRollout(
            messages=[*prompt, *reply],
            score=value,
            raw=record.raw,
            index=index,
            prompt_length=len(prompt),
        )
    )


def _solution(item: Any, field: str, record: Record) -> list[Message]:
    """The messages of a solution."""
    if isinstance(item, dict) and "role" not in item:
        name = next(name for name in _TEXTS if item.get(name) is not None)
        item, field = item[name], f"{field}.{name}"
    if isinstance(item, str):
        return [{"role": "assistant", "content": item}]
    return replies(item, field, [], record.tools)


def _prompt(raw: Row, key: str, solutions: Sequence[list[Message]], record: Record) -> list[Message]:
    """What the solutions answer. A conversation beside them gives its prompt, and its own reply is one of them."""
    name = next((name for name in _DIALOGUES if raw.get(name)), None)
    if name is None:
        return prompt_of(raw, tools=record.tools)
    messages = dialogue(raw[name], name, record.tools)
    if messages and messages[-1]["role"] == "assistant":
        text = text_of(messages[-1]).strip()
        if all(text != text_of(reply[-1]).strip() for reply in solutions):
            raise RowError(name, f"a reply that is one of {key}", kind_of(text))
        messages = messages[:-1]
    return in_context(messages, raw, tools=record.tools)


def _finish(raw: Row, own: Any, i: int, count: int) -> str | None:
    """Why a solution ended: in a list of its own, or in the solution's object."""
    return finish_at(raw, i, count) or (finish_in(own) if isinstance(own, dict) else None)


def _list_key(raw: Row) -> str | None:
    for key in _LISTS:
        value = raw.get(key)
        if isinstance(value, list) and value and all(_is_solution(item, key) for item in value):
            if key in _CERTAIN or _are_judged(raw, len(value)):
                return key
            if key != "solutions" and not _has_reply(raw):
                return key
    return None


def _has_reply(raw: Row) -> bool:
    """Is there a reply of another kind, or are the lists a test's?"""
    for name in ("messages", "conversations", "conversation"):
        value = raw.get(name)
        last = value[-1] if isinstance(value, list) and value else None
        if isinstance(value, str) or (isinstance(last, dict) and role_of(last) == "assistant"):
            return True
    return raw.get("completion") is not None or bool(raw.get("inputs"))


def _are_judged(raw: Row, count: int) -> bool:
    """Is there a list with a score for each?"""
    return any(
        isinstance(value, list)
        and len(value) == count
        and (name in _SCORES or name.startswith(_VERDICTS) or _is_judging(name, value, count))
        for name, value in raw.items()
    )


def _is_solution(item: Any, key: str) -> bool:
    if key == "choices":  # of a server's answer; elsewhere they are options to choose from
        return isinstance(item, dict) and isinstance(item.get("message"), dict)
    if isinstance(item, dict):
        return "role" in item or any(isinstance(item.get(name), str | list | dict) for name in _TEXTS)
    return isinstance(item, str) or is_dicts(item)


def _verdicts(raw: Row, key: str) -> dict[str, list[Any]]:
    """The lists with a score for each solution, the best known name first. Raises RowError for another length."""
    count = len(raw[key])
    names = [name for name in _SCORES if isinstance(raw.get(name), list)][:1]
    if not names:
        found = [name for name, value in raw.items() if name.startswith(_VERDICTS) and isinstance(value, list)]
        names = sorted(found, key=lambda name: "math_verify" not in name)
        names += [name for name, value in raw.items() if name not in names and _is_judging(name, value, count)]
    for name in names:
        if len(raw[name]) != count:
            raise RowError(name, f"{count} entries, as many as {key}", str(len(raw[name])))
    return {name: raw[name] for name in names}


def _is_judging(name: str, value: Any, count: int) -> bool:
    return (
        name.endswith(_ENDS)
        and isinstance(value, list)
        and len(value) == count
        and all(item is None or isinstance(item, int | float) for item in value)
    )


def score_field(raw: Row) -> str | None:
    """The field that holds a list of scores."""
    return next((name for name in _SCORES if isinstance(raw.get(name), list)), None)


def solvers(raw: Row) -> list[str]:
    """Fields that hold one solver's {solution, is_correct}; empty when the solutions are in a list."""
    if _list_key(raw) is not None:
        return []
    return [
        name
        for name, value in raw.items()
        if isinstance(value, dict) and isinstance(value.get("solution"), str) and "is_correct" in value
    ]


def _cut_lists(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    count = len(record.rollouts)
    cut = {key for key in parallel_keys(record.raw, count) if key not in _DIALOGUES} | {_list_key(record.raw)}
    raw = {
        key: [value[rollout.index] for rollout in kept] if key in cut else value for key, value in record.raw.items()
    }
    cut_history(raw, kept, count)
    return [raw]


def _cut_solvers(record: Record, kept: Sequence[StoredRollout]) -> list[Row]:
    names = solvers(record.raw)
    wanted = {names[rollout.index] for rollout in kept}
    raw = {key: value for key, value in record.raw.items() if key not in names or key in wanted}
    cut_history(raw, kept, len(names))
    return [raw]


FORMAT = Format(
    "solutions", True, matches, read, "a question with solutions: {question, response: [...], score: [...]}"
)
