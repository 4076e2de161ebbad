"""The JSON documents that the product writes: their fields, and their JSON Schemas as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from _pages.markdown import annotation_text, doc_of, page, quoted, table

INTRO = """\
All files hold UTF-8 JSON without `NaN` or `Infinity`. `schema_version` is 1; a change that old readers cannot
take raises it. Fields that are null are left out of `groups.jsonl`."""


def pages() -> Iterator[tuple[str, str]]:
    """reference/schemas.md and one JSON Schema per document."""
    from atropos_cli.domain.group import ScoredGroup
    from atropos_cli.domain.plan import Plan
    from atropos_cli.domain.run import FailureRecord, RunSummary
    from atropos_cli.runs.entry import RunEntry

    documents = {
        ScoredGroup: "One line of `groups.jsonl`.",
        Plan: "`plan.json`, beside its `digest`; what `--dry-run --json` prints.",
        RunSummary: "`summary.json`; what `atropos gen --json` prints, beside `run`.",
        FailureRecord: "One line of `failures.jsonl`.",
        RunEntry: "One of `runs` in what `atropos runs --json` prints.",
    }
    parts = []
    for model, where in documents.items():
        file = f"schemas/{model.__name__}.schema.json"
        schema = model.model_json_schema(mode="validation")
        yield file, json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2)
        parts.append(f"## {model.__name__}\n\n{where} JSON Schema: {{download}}`{model.__name__} <{file}>`.")
        parts.append(doc_of(model, model.model_fields))
        parts.append(_fields(model))
    parts.append("## Their parts")
    for model in _parts(list(documents)):
        parts += [f"### {model.__name__}", doc_of(model, model.model_fields), _fields(model)]
    yield "schemas.md", page("Schemas", INTRO, *parts)


def _fields(model: Any) -> str:
    rows = []
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else quoted(json.dumps(_plain(field)))
        rows.append((f"`{name}`", quoted(annotation_text(field.annotation)), default, field.description or ""))
    described = any(row[3] for row in rows)
    header = ("field", "type", "default", "meaning")
    return table(header, rows) if described else table(header[:3], [row[:3] for row in rows])


def _plain(field: Any) -> Any:
    value = field.get_default(call_default_factory=True)
    return value.model_dump(mode="json", exclude_defaults=True) if hasattr(value, "model_dump") else value


def _parts(models: list[Any]) -> list[Any]:
    """The models inside the documents, each once, in the order they are met."""
    from typing import get_args

    from pydantic import BaseModel

    found: list[Any] = []

    def visit(annotation: Any) -> None:
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        if is_model and annotation not in found and annotation not in models:
            found.append(annotation)
            walk(annotation)
        for inner in get_args(annotation):
            visit(inner)

    def walk(model: Any) -> None:
        for field in model.model_fields.values():
            visit(field.annotation)

    for model in models:
        walk(model)
    return found
