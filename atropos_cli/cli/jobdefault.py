"""What is submitted when `atropos job submit` is given no command: what the folder describes."""

from __future__ import annotations

import shlex
from pathlib import Path

from atropos_cli.console.session import Session
from atropos_cli.errors import UsageError

_PIPELINE = "pipeline.toml"
_PLAN = "plan.json"


def described_command(session: Session, launcher: str, config: Path | None) -> list[str]:
    """`command` in [LAUNCHER] or [job] of the configuration, else pipeline.toml, else plan.json of this folder.

    Raises UsageError with examples that fit this cluster when there is none of them.
    """
    from atropos_cli.config.launchers import described_in_files

    described = described_in_files(launcher, config)
    if described is not None:
        section, text = described
        try:
            return shlex.split(text)
        except ValueError as error:
            raise UsageError(f"[{section}] command: {error}", hint="write it as on the command line") from error
    if Path(_PIPELINE).is_file():
        return [_PIPELINE]
    if Path(_PLAN).is_file():
        return ["run", _PLAN]
    examples = session.registry.find("launcher", launcher).load().examples()
    raise UsageError(
        f"nothing to submit: no command was given, and this folder has no [{launcher}] command in atropos.toml, "
        f"no {_PIPELINE} and no {_PLAN}",
        hint="for example:\n" + "\n".join(f"  {line}" for line in examples),
    )
