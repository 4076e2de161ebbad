"""JSON lines to parquet in two passes: the schema of all rows first, then the rows, a batch at a time.

No type is fixed by the first rows. A column whose values do not fit one type (text here, a list there)
is stored as JSON text, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atropos_cli.errors import DataError
from atropos_cli.io.jsonvalue import dump, parse
from atropos_cli.paths import replacing

_BATCH = 1000


def lines_to_parquet(path: Path) -> list[str]:
    """Turn a file of JSON lines into a parquet file of the same name; returns notes on columns stored as text."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise DataError("writing parquet needs pyarrow", hint="pip install 'atropos-cli[parquet]'") from error
    fields, as_text = _fields(pa, path)
    schema = pa.schema([(name, pa.string() if name in as_text else kind) for name, kind in fields.items()])
    with replacing(path, sync=False) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _batches(path):
            columns = [
                pa.array([_cell(row.get(name), name in as_text) for row in rows], type=schema.field(name).type)
                for name in fields
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return [f"column {name!r} holds values of several types: stored as JSON text" for name in sorted(as_text)]


def _cell(value: Any, as_text: bool) -> Any:
    if not as_text or value is None:
        return value
    return dump(value).decode()


def _fields(pa: Any, path: Path) -> tuple[dict[str, Any], set[str]]:
    """(type of each column over all rows, columns that must be text)."""
    fields: dict[str, Any] = {}
    as_text: set[str] = set()
    for rows in _batches(path):
        names = dict.fromkeys(name for row in rows for name in row)
        for name in names:
            if name in as_text:
                continue
            try:
                kind = pa.array([row.get(name) for row in rows]).type
                old = fields.get(name)
                fields[name] = kind if old is None else _unified(pa, old, kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
                fields.setdefault(name, pa.string())
                as_text.add(name)
    for name, kind in fields.items():
        if _has_empty_struct(pa, kind):
            as_text.add(name)  # parquet cannot store an object without keys
        elif pa.types.is_null(kind):
            fields[name] = pa.string()
    return fields, as_text


def _unified(pa: Any, old: Any, new: Any) -> Any:
    if old == new:
        return old
    schemas = [pa.schema([("x", old)]), pa.schema([("x", new)])]
    return pa.unify_schemas(schemas, promote_options="permissive").field("x").type


def _has_empty_struct(pa: Any, kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_has_empty_struct(pa, kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_list(kind)) and _has_empty_struct(pa, kind.value_type)


def _batches(path: Path) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    with path.open("rb") as file:
        for line in file:
            rows.append(parse(line)[0])
            if len(rows) == _BATCH:
                yield rows
                rows = []
    if rows:
        yield rows
