"""A launcher that makes the shards of a command over rows one after another, in the process that submits them."""

from __future__ import annotations

import importlib
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atropos_cli.cli.passes import make_part
from atropos_cli.console.session import Session
from atropos_cli.sdk.launchers import JobSpec, JobStatus, KeyedJob, Launcher, LauncherCapabilities


class Here(Launcher):
    """ATROPOS_TEST_FAIL=1,3: these shards fail before they begin."""

    name = "here"
    capabilities = LauncherCapabilities(shards=True, keyed=True)

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._made: list[int] = []
        self._failed = False

    def render(self, job: JobSpec) -> str:
        return job.run

    def submit(self, job: JobSpec) -> str:
        broken = os.environ.get("ATROPOS_TEST_FAIL", "").split(",")
        for folder, _ in job.parts():
            if folder.name in broken:
                self._failed = True
            else:
                make_part(folder / "plan.json", Session())
        return job.run

    def status(self, job_id: str) -> JobStatus:
        state = "failed" if self._failed else "finished"
        return JobStatus(id=job_id, state=state, exit_code=int(self._failed), reason="as asked")  # type: ignore[arg-type]

    def logs(self, job_id: str, *, follow: bool = False) -> Iterator[str]:
        return iter(())

    def cancel(self, job_id: str) -> None:
        pass

    def decide(self, job: KeyedJob) -> None:
        import pyarrow
        import pyarrow.parquet

        module, _, name = job.function.partition(":")
        buckets: dict[int, list[Any]] = defaultdict(list)
        for file in job.files:
            for row in pyarrow.parquet.read_table(file).to_pylist():
                buckets[row["bucket"]].append((row["place"], row["key"], row["payload"]))
        found = [
            pair
            for rows in buckets.values()
            for pair in getattr(importlib.import_module(module), name)(sorted(rows), job.options)
        ]
        Path(job.out).mkdir()
        columns = {"place": [place for place, _ in found], "verdict": [verdict for _, verdict in found]}
        schema = pyarrow.schema([("place", pyarrow.int64()), ("verdict", pyarrow.int32())])
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), Path(job.out) / "all.parquet")
