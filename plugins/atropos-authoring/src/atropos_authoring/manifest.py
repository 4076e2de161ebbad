"""The project templates. This module is what atropos loads: it names the components."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from atropos_cli.sdk import ComponentSpec, DataError, hookimpl


@hookimpl
def atropos_register_templates() -> Iterator[ComponentSpec]:
    """One for each kind of component that has a template."""
    for folder in sorted(shipped_templates().iterdir()):
        if folder.is_dir():
            yield ComponentSpec("template", folder.name, folder, summary=f"A distribution with one {folder.name}.")


def shipped_templates() -> Path:
    """The folder of the templates that ship with this distribution, in a wheel or in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_templates", package.parents[3] / "templates"):
        if folder.is_dir():
            return folder
    raise DataError(
        "this installation of atropos-authoring has no templates",
        hint="pip install --force-reinstall atropos-authoring",
    )
