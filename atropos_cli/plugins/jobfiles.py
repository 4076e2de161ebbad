"""Files that are submitted in place of a command, by the plugin that knows their format."""

from __future__ import annotations

from typing import Any

from atropos_cli.errors import AtroposError, ComponentNotFound
from atropos_cli.plugins.firstanswer import first_answer
from atropos_cli.plugins.firstparty import pip_install


def submit_file(asked: dict[str, Any]) -> int:
    """Submit it through the first plugin that knows it; returns the exit code. asked: as of atropos_submit_file.

    Raises ComponentNotFound when none does, PluginError for the fault of a plugin, and what the plugin finds wrong.
    """
    task = f"submit {asked['path'].name!r}"
    code = first_answer(asked["session"].registry, "atropos_submit_file", asked, int, task, AtroposError)
    if code is not None:
        return code
    raise ComponentNotFound(
        f"{asked['path']}: pipelines come with atropos-pipeline, which is not installed",
        hint=pip_install("atropos-pipeline"),
    )
