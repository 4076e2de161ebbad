"""What a pipeline's folder remembers of each step, and whether a step is done.

    <folder>/pipeline.json              the resolved pipeline
    <folder>/steps/NAME/record.json     the last attempt at a step
    <folder>/steps/NAME/log.txt         what its command wrote, all attempts one after the other

A step is done when its last attempt ended with 0 and nothing it depends on is different now: its command
and environment (the digest), the files it reads, and the attempts of the steps before it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from atropos_cli.sdk import DataError
from atropos_cli.sdk.data import atomic_write, file_lock, make_folder, write_orders
from atropos_cli.sdk.launchers import Frozen
from atropos_pipeline.model import Pipeline, ReadyStep

AttemptState = Literal["running", "done", "failed", "interrupted"]
StepState = Literal["new", "unfinished", "done", "changed", "outdated"]


class StepRecord(Frozen):
    """One attempt at a step. `after`: the attempt ids of the steps before it; `inputs`: fingerprints of its files."""

    id: str
    step: str
    digest: str
    state: AttemptState
    command: tuple[str, ...]
    exit_code: int | None = None
    inputs: dict[str, str] = Field(default_factory=dict)
    after: dict[str, str] = Field(default_factory=dict)
    started: str
    ended: str | None = None
    host: str = ""


class StepView(Frozen):
    """How a step stands, and why it is not done."""

    name: str
    state: StepState
    reason: str = ""
    record: StepRecord | None = None


def step_folder(pipeline: Pipeline, name: str) -> Path:
    return Path(pipeline.folder) / "steps" / name


def write_pipeline(pipeline: Pipeline) -> None:
    """pipeline.json in the folder, which is made. Raises DataError."""
    try:
        for step in pipeline.steps:
            make_folder(step_folder(pipeline, step.name))
    except OSError as error:
        raise DataError(f"{error.filename} cannot be made: {error.strerror}", hint="give another --output") from error
    text = json.dumps(pipeline.model_dump(mode="json"), indent=2, ensure_ascii=False)
    write_orders(Path(pipeline.folder) / "pipeline.json", text.encode() + b"\n")


def read_stored(folder: Path) -> Pipeline:
    """The pipeline of a folder. Raises DataError."""
    path = folder / "pipeline.json"
    try:
        return Pipeline.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(f"{folder} holds no pipeline", hint="give the folder of an atropos pipeline run") from error
    except (ValidationError, OSError) as error:
        raise DataError(f"{path} is no pipeline: {error}") from error


def read_record(pipeline: Pipeline, name: str) -> StepRecord | None:
    """The last attempt at a step; None when there was none. Raises DataError for a damaged record."""
    path = step_folder(pipeline, name) / "record.json"
    try:
        return StepRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValidationError, OSError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="remove it: the step is then carried out again") from error


def write_record(pipeline: Pipeline, record: StepRecord) -> None:
    text = record.model_dump_json(indent=2, exclude_none=True)
    atomic_write(step_folder(pipeline, record.step) / "record.json", text.encode() + b"\n")


def view(pipeline: Pipeline) -> dict[str, StepView]:
    """How each step stands, in the pipeline's order."""
    records = {step.name: read_record(pipeline, step.name) for step in pipeline.steps}
    found: dict[str, StepView] = {}
    for step in pipeline.steps:
        state, reason = _state(step, records)
        if reason == "running" and killed(pipeline, records[step.name]):
            reason = "killed"
        found[step.name] = StepView(name=step.name, state=state, reason=reason, record=records[step.name])
    return found


def killed(pipeline: Pipeline, record: StepRecord | None) -> bool:
    """Is a step recorded as running whose process, on this machine, is gone? False for other machines."""
    if record is None or record.state != "running" or record.host != socket.gethostname():
        return False
    try:
        with file_lock(step_folder(pipeline, record.step) / "lock", wait=0):
            return True
    except OSError:
        return False


def attempt_ids(pipeline: Pipeline, names: Iterable[str]) -> dict[str, str]:
    """The ids of the last attempts at some steps."""
    records = [read_record(pipeline, name) for name in names]
    return {record.step: record.id for record in records if record is not None}


def _state(step: ReadyStep, records: dict[str, StepRecord | None]) -> tuple[StepState, str]:
    record = records[step.name]
    if record is None:
        return "new", ""
    if record.digest != step.digest:
        return "changed", "it, or a step before it, had another command or environment then"
    if record.state != "done":
        return "unfinished", record.state if record.exit_code is None else f"exit code {record.exit_code}"
    if step.output is not None and not Path(step.output).exists():
        return "unfinished", f"{step.output} is gone"
    for name in step.after:
        before = records[name]
        if before is None or record.after.get(name) != before.id:
            return "outdated", f"{name} was carried out again since"
    for path in step.inputs:
        if record.inputs.get(path) != fingerprint(Path(path)):
            return "outdated", f"{path} has changed since"
    return "done", ""


def fingerprint(path: Path) -> str:
    """A hash of a file's content; for a folder, of the names, sizes and times in it. Empty when it is not there."""
    digest = blake2b(digest_size=16)
    try:
        if path.is_dir():
            for folder, folders, files in os.walk(path):
                folders.sort()
                for name in sorted(files):
                    status = (Path(folder) / name).stat()
                    where = os.path.relpath(os.path.join(folder, name), path)  # noqa: PTH118 (a walk gives texts)
                    digest.update(f"{where}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
        else:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()
