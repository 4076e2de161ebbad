"""Rows of one key brought together by Ray Data, and a function that decides over them."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from atropos_cli.sdk.launchers import KeyedJob

_PARTITIONS = 1000


def decide(job: KeyedJob) -> None:
    """Group by bucket, decide in each over its rows in order, and write the verdicts."""
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.read_parquet(list(job.files))
    arguments = {"function": job.function, "options": dict(job.options)}
    groups = rows.groupby("bucket", num_partitions=min(_PARTITIONS, 2 * len(job.files)))
    found = groups.map_groups(verdicts, fn_kwargs=arguments, batch_format="pyarrow")
    found.write_parquet(job.out)


def verdicts(table: Any, function: str, options: Mapping[str, Any]) -> Any:
    """The verdicts on the rows of a bucket, as a table."""
    import pyarrow

    module, _, name = function.partition(":")
    decision = getattr(importlib.import_module(module), name)
    table = table.sort_by("place")
    columns = (table.column(name).to_pylist() for name in ("place", "key", "payload"))
    found = decision(zip(*columns, strict=True), options)
    schema = pyarrow.schema([("place", pyarrow.int64()), ("verdict", pyarrow.int32())])
    return pyarrow.table([[place for place, _ in found], [verdict for _, verdict in found]], schema=schema)
