"""Array jobs: each task of the array is a job of its own in FOLDER/shards/INDEX; the last one joins the runs.

    python -m atropos_cli.jobs.shards FOLDER/shards/INDEX      the step behind `gen --shard INDEX/COUNT`

The shard that finishes last finds all others finished and merges them into FOLDER. Two that finish at the
same moment take turns by a lock; where the file system has no locks both merge, and both write the same.
A job that waited in the queue for its turn to merge would cost more than the merge itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from atropos_cli.datasets.merging import RunMerge
from atropos_cli.domain.job import JobPlan
from atropos_cli.errors import AtroposError, DataError, LaunchError
from atropos_cli.io.lock import lock_fd
from atropos_cli.io.rundir import open_run
from atropos_cli.io.sources import Source
from atropos_cli.jobs.folder import read_job, read_record, write_job

_MOVED = (
    *("log.jsonl", "failures.jsonl", "groups.jsonl", "groups.jsonl.zst", "plan.json"),
    *("totals.json", "summary.json"),
)
"""The summary last: it tells readers that the rest is there."""


def shard_folder(folder: Path, index: int) -> Path:
    return folder / "shards" / str(index)


def enter_shard(plan: JobPlan, folder: Path, environ: Mapping[str, str]) -> tuple[JobPlan, Path]:
    """The plan and the folder of this task of the array. A plan without an array is returned as it is.

    Raises LaunchError outside of an array job.
    """
    count = plan.resources.array
    if count is None:
        return plan, folder
    try:
        index = int(environ["SLURM_ARRAY_TASK_ID"])
    except (KeyError, ValueError) as error:
        raise LaunchError(f"{folder} is an array of {count} shards, and this is no array task") from error
    if not 0 <= index < count:
        raise LaunchError(f"array task {index} of a plan with {count} shards")
    own: JobPlan = plan.replace(shard=(index, count), resources=plan.resources.replace(array=None))
    place = shard_folder(folder, index)
    write_job(own, place)
    return own, place


def merge_when_complete(place: Path) -> str:
    """Join the shards into their common folder if all have finished; tells what was done."""
    shard = read_job(place / "job.json").shard
    if shard is None:
        raise DataError(f"{place} is no shard of an array job")
    folder = place.parent.parent
    shards = [shard_folder(folder, index) for index in range(shard[1])]
    summaries = [read_record(path / "summary.json") or {} for path in shards]
    open_ones = [str(number) for number, item in enumerate(summaries) if item.get("state") != "finished"]
    if open_ones:
        return f"shard {shard[0]} is done; not merged yet: shards {', '.join(open_ones)} of {shard[1]} are not finished"
    with _lock(folder / "merge.lock"):
        done = sum(int(item.get("groups_done") or 0) for item in summaries)
        merged = read_record(folder / "summary.json")
        if merged is not None and merged.get("state") == "finished" and merged.get("groups_done") == done:
            return f"{folder} is merged already: {done} groups"
        _merge(folder, shards)
    return f"merged {done} groups of {shard[1]} shards into {folder}"


def merge_shards(folder: Path, count: int) -> None:
    """Join `count` shards into their common folder, whether they are complete or not. Raises DataError."""
    with _lock(folder / "merge.lock"):
        _merge(folder, [shard_folder(folder, index) for index in range(count)])


def _merge(folder: Path, shards: list[Path]) -> None:
    sources: list[Source] = []
    for path in shards:
        for name in ("groups.jsonl", "groups.jsonl.zst"):
            if (path / name).exists():  # a shard without tasks writes none
                sources.append(Source(str(path / name), path / name, "lines", run=path))
                break
    if not sources:
        raise DataError(f"none of the shards in {folder / 'shards'} has any groups")
    work = folder / f".merge-{os.getpid()}"
    run = open_run(work, overwrite=True)
    try:
        RunMerge(sources).write(run)
    finally:
        run.close()
    for name in _MOVED:
        if (work / name).exists():
            (work / name).replace(folder / name)
    (work / "lock").unlink(missing_ok=True)
    work.rmdir()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held where the file system has locks."""
    with path.open("w") as file:
        with contextlib.suppress(OSError):
            lock_fd(file.fileno())
        yield


def main(args: list[str]) -> int:
    """The merge step of one shard."""
    try:
        text = merge_when_complete(Path(args[0]))
    except AtroposError as error:
        sys.stderr.write(f"error: {error.message}\n")
        return error.exit_code
    sys.stderr.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
