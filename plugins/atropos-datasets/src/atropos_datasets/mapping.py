"""From a row to a problem: which field holds what, and every complaint about a row in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import blake2b
from string import ascii_uppercase
from typing import Any

from pydantic import JsonValue

from atropos_cli.sdk import ConfigError, DataError, JsonDict, Message, OverTime, time_limit
from atropos_cli.sdk.data import PROMPT_PARTS, whole_prompt
from atropos_datasets.choices import gold_index, options_of, positional, shuffled
from atropos_datasets.config import DatasetConfig
from atropos_datasets.rows import Rows

_USUAL = {
    "prompt": ("question", "problem", "prompt", "input", "instruction", "query"),
    "answer": ("answer", "solution", "ground_truth", "target", "output", "label", "answerKey"),
    "choices": ("choices", "options"),
}
_MISSING = object()


class BadRow(ValueError):
    """A row that cannot be made a problem; the text does not say which row it is."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A row as far as it does not depend on the prompt's form.

    shot: how an example is answered. before: the row's own system message and history, before the question.
    """

    question: str | tuple[Message, ...]
    answer: JsonValue
    shot: str
    options: tuple[str, ...] = ()
    info: JsonDict = field(default_factory=dict)
    before: tuple[Message, ...] = ()


class Mapping:
    """Reads rows by the fields that the options name."""

    def __init__(self, config: DatasetConfig) -> None:
        self.config = config
        self._regex = re.compile(config.answer_regex) if config.answer_regex else None
        self._named = frozenset((*self.roles.values(), *config.info_fields)) - {config.prompt_field}

    @property
    def roles(self) -> dict[str, str]:
        """Option -> field, of all fields that are read."""
        config = self.config
        named = {
            "prompt": config.prompt_field,
            "answer": config.answer_field,
            "choices": config.choices_field,
            "few-shot": config.few_shot_field if config.few_shot else None,
            "id": config.id_field,
        }
        return {role: name for role, name in named.items() if name}

    @property
    def fields(self) -> list[str]:
        """The top-level fields that are read, and the dotted names as they stand: a field may be called so."""
        names = [*self.roles.values(), *self.config.info_fields, *PROMPT_PARTS]
        return list(dict.fromkeys(part for name in names for part in (name, name.partition(".")[0])))

    def problem(self, row: JsonDict, task_id: str) -> Problem:
        """The problem of a row. Raises BadRow."""
        question, before = self._question(row)
        raw = self._required(row, "answer") if self.config.answer_field else None
        info: JsonDict = {}
        for name in self.config.info_fields:
            value = lookup(row, name)
            if value is not _MISSING:
                info[name] = value
        if self.config.choices_field:
            return replace(self._choice(row, question, raw, info, task_id), before=before)
        answer = self._gold(raw)
        if answer != raw:
            info["answer_text"] = raw
        shown = self._required(row, "few-shot") if self.config.few_shot and self.config.few_shot_field else raw
        return Problem(question, answer, _text(shown), info=info, before=before)

    def row_id(self, row: JsonDict) -> str | None:
        """The id in a row as text, so that 7 and "7" are the same; a row without one is named by its content."""
        if self.config.id_field is None or not self.config.id_field:
            return None
        value = lookup(row, self.config.id_field)
        if value is _MISSING or value is None or value == "":
            named = {name: row.get(name) for name in self.fields}
            text = json.dumps(named, sort_keys=True, ensure_ascii=True)
            return f"row-{blake2b(text.encode(), digest_size=6).hexdigest()}"
        if isinstance(value, dict | list):
            raise BadRow(f"field {self.config.id_field!r} holds {value!r}, which is no id")
        return str(value)

    def check_fields(self, fields: Iterable[str], sample: JsonDict | None, what: str) -> None:
        """Refuse an option that names a field no row has. Raises DataError with what there is."""
        present = sorted(fields)
        for role, name in [*self.roles.items(), *(("info", name) for name in self.config.info_fields)]:
            if name in present or (sample is not None and lookup(sample, name) is not _MISSING):
                continue
            if "." in name and name.partition(".")[0] in present and sample is None:
                continue
            option = {"info": "--info-fields", "few-shot": "--few-shot-field"}.get(role, f"--{role}-field")
            usual = [known for known in _USUAL.get(role, ()) if known in present]
            close = get_close_matches(name, present, n=1, cutoff=0.8) or usual or get_close_matches(name, present, n=1)
            if role in ("id", "info", "few-shot", "choices") and not close:
                hint = f"leave {option} out, or name one of the fields"
            else:
                hint = f"{option} {close[0] if close else 'NAME'}"
                if role == "prompt" and "answer" not in present and self.config.answer_field == "answer":
                    gold = [known for known in _USUAL["answer"] if known in present]
                    hint += f" --answer-field {gold[0]}" if gold else ""
            raise DataError(
                f"{what} has no field {name!r} ({option}); its fields: {', '.join(present) or 'none'}", hint=hint
            )

    def _question(self, row: JsonDict) -> tuple[str | tuple[Message, ...], tuple[Message, ...]]:
        """(the question, what comes before it): the named field, with the parts of a prompt that stand beside it.

        A field that another option names is no part of the prompt.
        """
        value = self._required(row, "prompt")
        if not (isinstance(value, str) and value.strip()) and not (isinstance(value, list) and value):
            raise BadRow(f"field {self.config.prompt_field!r} holds {_short(value)}, which is no prompt")
        try:
            messages = whole_prompt(row, self.config.prompt_field, value, self._named)
        except ValueError as error:
            way_out = "" if str(error).startswith("the prompt") else " (--info-fields keeps a field out of the prompt)"
            raise BadRow(f"{error}{way_out}") from None
        one_text = self.config.choices_field or self.config.prompt_template or self.config.prompt_style == "plain"
        if isinstance(value, str) and messages[-1].role == "user":
            if one_text and any(message.role != "system" for message in messages[:-1]):
                raise BadRow("the prompt has earlier turns: options, template and plain style need a text")
            return messages[-1].text, messages[:-1]
        if one_text:
            raise BadRow("the prompt is a list of messages: options, template and plain style need a text")
        return messages, ()

    def _gold(self, raw: Any) -> JsonValue:
        """The gold answer: the field itself, unchanged, or the part that prefix and expression cut out."""
        text = raw
        if self.config.answer_prefix:
            _, found, text = str(raw).rpartition(self.config.answer_prefix)
            if not found:
                raise BadRow(f"the answer has no {self.config.answer_prefix!r} (--answer-prefix): {_short(raw)}")
            text = text.strip()
        if self._regex is not None:
            try:
                with time_limit():
                    matches = list(self._regex.finditer(str(text)))
            except OverTime as error:
                raise ConfigError(f"--answer-regex {self.config.answer_regex!r} took too long: {error}") from error
            if not matches:
                raise BadRow(f"the answer does not match {self.config.answer_regex!r}: {_short(raw)}")
            last = matches[-1]
            text = last[1] if self._regex.groups and last[1] is not None else last[0]
        if self.config.answer_field and (text is None or (isinstance(text, str) and not text.strip())):
            raise BadRow(f"the answer is empty: {_short(raw)}")
        result: JsonValue = text
        return result

    def _choice(
        self, row: JsonDict, question: str | tuple[Message, ...], raw: Any, info: JsonDict, task_id: str
    ) -> Problem:
        value = self._required(row, "choices")
        try:
            options, labels = options_of(value)
        except ValueError as error:
            raise BadRow(f"field {self.config.choices_field!r} {error}: {_short(value)}") from None
        answer = self._gold(raw)
        try:
            gold = gold_index(answer, options, labels)
        except ValueError as error:
            raise BadRow(f"the answer {error}") from None
        order = list(range(len(options)))
        if self.config.shuffle_choices and not positional(options):
            order = shuffled(len(options), f"{self.config.choice_seed}:{task_id}")
        shown = [options[index] for index in order]
        letter = ascii_uppercase[order.index(gold)]
        given: JsonDict = {**info, "choices": list(shown), "order": list(order)}
        return Problem(question, letter, f"The answer is ({letter}).", tuple(shown), given)

    def _required(self, row: JsonDict, role: str) -> Any:
        name = self.roles[role]
        value = lookup(row, name)
        if value is _MISSING:
            raise BadRow(f"there is no field {name!r}; its fields: {', '.join(sorted(row))}")
        if value is None:
            raise BadRow(f"field {name!r} is null")
        return value


class Index:
    """What one pass over all rows finds: that each is whole, and which ids had to be changed."""

    def __init__(self, rows: Rows, mapping: Mapping, split: str) -> None:
        self._rows = rows
        self._mapping = mapping
        self._split = split
        self._renamed: dict[int, str] = {}
        known, what = rows.fields, rows.name
        if len(rows) == 0:
            raise DataError(f"{what} holds no rows", hint="give a file with one JSON object a line, or another split")
        if known is not None:
            mapping.check_fields(known, None, what)
        self._check(what, known is None)

    def task_id(self, index: int, row: JsonDict) -> str:
        """The id of row `index`; unique. The first row with an id keeps it, a later one gets its number appended."""
        if index in self._renamed:
            return self._renamed[index]
        return self._mapping.row_id(row) or f"{self._split}-{index}"

    def _check(self, what: str, check_fields: bool) -> None:
        seen: set[int] = set()
        for index, row in enumerate(self._scan()):
            if index == 0 and check_fields:
                self._mapping.check_fields(self._sampled_fields(row), row, what)
            try:
                own = self._mapping.row_id(row)
                if own is not None:
                    self._note(own, index, seen)
                self._mapping.problem(row, self.task_id(index, row))
            except BadRow as error:
                raise DataError(f"{self._rows.where(index)}: {error}", hint="mend or remove the row") from None

    def _sampled_fields(self, first: JsonDict) -> set[str]:
        """The fields of the first rows: an id, or something kept for reports, may be missing in some."""
        found = set(first)
        roles = self._mapping.roles
        optional = [roles["id"]] if "id" in roles else []
        optional += self._mapping.config.info_fields
        wanted = {name for name in optional if name not in found and lookup(first, name) is _MISSING}
        if wanted:
            for row in self._scan():
                for name in [name for name in wanted if lookup(row, name) is not _MISSING]:
                    found.add(name)
                    wanted.discard(name)
                if not wanted:
                    break
        return found

    def _scan(self) -> Iterator[JsonDict]:
        return self._rows.scan(self._mapping.fields)

    def _note(self, own: str, index: int, seen: set[int]) -> None:
        name = own
        while (key := int.from_bytes(blake2b(name.encode(), digest_size=8).digest())) in seen:
            name = f"{name}-row{index}"
        seen.add(key)
        if name != own:
            self._renamed[index] = name


def lookup(row: JsonDict, name: str) -> Any:
    """The value of a field, or inside one for a dotted name; _MISSING when there is none."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _MISSING
        value = value[part]
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
