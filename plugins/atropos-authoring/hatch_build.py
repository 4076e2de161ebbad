"""Puts the project templates into wheels and sdists: from the top of the repository, or from an sdist's own copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Templates(BuildHookInterface):  # type: ignore[type-arg]
    """One folder per template; what else is beside them stays out."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # the code finds the ones of the checkout
        project = Path(self.root)
        here = project / "templates"
        shared = here if here.is_dir() else project.parents[1] / "templates"
        place = "atropos_authoring/_templates" if self.target_name == "wheel" else "templates"
        for template in sorted(path for path in shared.iterdir() if path.is_dir()):
            build_data["force_include"][str(template)] = f"{place}/{template.name}"
