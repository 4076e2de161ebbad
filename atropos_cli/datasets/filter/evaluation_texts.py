"""The questions and solutions of rows of any evaluation set, found by the names of their fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic_core import from_json

from atropos_cli.io.formats.common import ROLES

QUESTIONS = (
    "question", "questions", "question_text", "problem", "problems", "problem_statement", "prompt", "prompts", "query",
    "instruction", "input", "inputs", "text", "content", "stem", "ctx", "goal", "premise", "sentence", "statement",
    "user", "human", "request", "puzzle", "title", "body",
)  # fmt: skip
SOLUTIONS = (
    "solution", "solutions", "canonical_solution", "code", "completion", "response", "output", "answer", "answers",
    "target", "ground_truth", "reference", "reference_answer", "gold", "rationale", "explanation", "choices",
    "options", "endings", "context", "passage", "article", "story", "document", "chosen", "rejected",
)  # fmt: skip
DIALOGUES = ("messages", "conversations", "conversation", "dialogue", "dialog", "turns", "history")
CONTAINERS = (
    "task", "doc", "data", "row", "rows", "item", "items", "sample", "samples", "example", "examples",
    "entry", "entries", "instances", "records", "contents", "parts", "paragraphs", "qas", "info", "extra_info",
)  # fmt: skip
_KINDS = {
    **dict.fromkeys(QUESTIONS, "question"),
    **dict.fromkeys(SOLUTIONS, "solution"),
    **dict.fromkeys((*DIALOGUES, *CONTAINERS), "container"),
}
_DEPTH = 8


class EvaluationText(NamedTuple):
    """A question (its parts: an instruction and its input are separate in a template) or a solution."""

    parts: tuple[str, ...]
    question: bool


def evaluation_texts(row: dict[str, Any]) -> Iterator[EvaluationText]:
    """What one row asks and answers; of a scored group, what its task does. System messages are not questions."""
    task = row.get("task")
    yield from _of_row(task if isinstance(task, dict) else row, _DEPTH)


def _of_row(row: dict[str, Any], depth: int) -> Iterator[EvaluationText]:
    if depth < 0:
        return
    fields = [(_kind_of(plain), plain, value) for name, value in row.items() for plain in (_plain_name(name),)]
    texts = {name: value for kind, name, value in fields if kind == "question" and isinstance(value, str)}
    asked = next((texts[name] for name in ("instruction", "question", "problem", "query") if texts.get(name)), "")
    if asked.strip() and texts.get("input", "").strip():
        yield EvaluationText((asked, texts["input"]), True)
        fields = [field for field in fields if not (field[1] == "input" or field[2] is asked)]
    for kind, _, value in fields:
        if kind is not None:
            yield from _of_value(value, kind, depth - 1)


def _plain_name(name: str) -> str:
    """ "questionText", "Question: " and "question-text" are names that people write."""
    return re.sub(r"[\W_]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).strip("_").lower()


def _kind_of(plain: str) -> str | None:
    """A language, a number or a word for text behind a name changes nothing: question_en, prompt_text, problem_2."""
    return _KINDS.get(plain) or _KINDS.get(
        re.sub(r"_(?!id|no|nr)[a-z]{2}$|_?\d+$|_(?:text|str|string|content)$", "", plain)
    )


def _of_value(value: Any, kind: str, depth: int) -> Iterator[EvaluationText]:
    if depth < 0:
        return
    if isinstance(value, str):
        stored = _stored_json(value)
        if stored is not None:
            yield from _of_value(stored, kind, depth - 1)
        elif kind != "container" and value.strip():
            yield EvaluationText((value,), kind == "question")
    elif isinstance(value, list):
        for item in value:
            # A plain text in a list of turns is what the user says (MT-Bench).
            yield from _of_value(item, "question" if kind == "container" and isinstance(item, str) else kind, depth)
    elif isinstance(value, dict):
        name = value.get("role", value.get("from", value.get("speaker")))
        if isinstance(name, str):
            role = ROLES.get(name.lower(), "")
            if role in ("user", "assistant"):
                said = next((value[key] for key in ("content", "value", "text", "parts") if key in value), None)
                yield from _of_value(said, "question" if role == "user" else "solution", depth - 1)
        elif kind == "solution":
            for found in _of_row(value, depth - 1):
                yield found._replace(question=False)
        else:
            yield from _of_row(value, depth - 1)


def _stored_json(text: str) -> Any:
    """Messages or a row that were stored as JSON text; None for any other text."""
    if text[:1] not in ("[", "{") or '"' not in text:
        return None
    try:
        value = from_json(text)
    except ValueError:
        return None
    rows = value if isinstance(value, list) else [value]
    return value if rows and all(isinstance(item, dict) for item in rows) else None
