"""Pipelines of atropos commands. atropos loads this module first: it names the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atropos_cli.sdk import hookimpl

if TYPE_CHECKING:
    from pathlib import Path

    from atropos_cli.sdk.commands import Session
    from atropos_cli.sdk.launchers import Launcher

_ENDINGS = (".toml", ".yaml", ".yml")


@hookimpl
def atropos_submit_file(
    path: Path, launcher: Launcher, folder: Path | None, session: Session, dry_run: bool, as_json: bool
) -> int | None:
    """A pipeline, TOML or YAML: each of its steps becomes a job."""
    if path.suffix not in _ENDINGS:
        return None
    from atropos_pipeline.commands import submit_file

    return submit_file(path, folder, session, launcher, dry_run=dry_run, as_json=as_json)
