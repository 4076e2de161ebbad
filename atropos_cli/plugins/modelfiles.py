"""Files of models, opened by the plugin that reads their format."""

from __future__ import annotations

from pathlib import Path

from atropos_cli.errors import ConfigError
from atropos_cli.plugins.firstanswer import first_answer
from atropos_cli.plugins.firstparty import pip_install
from atropos_cli.ports.modelfile import ModelFile


def open_model_file(path: Path) -> ModelFile:
    """The file, opened by the first plugin that knows its format.

    Raises ConfigError when none does or the file is damaged, PluginError for the fault of a plugin.
    """
    from atropos_cli.plugins.discovery import get_registry

    registry, task = get_registry(), f"open {path.name!r}"
    # mypy takes no abstract class for type[T]; here it is only the type of the answer
    opened = first_answer(registry, "atropos_open_model_file", {"path": path}, ModelFile, task, ConfigError)  # type: ignore[type-abstract]
    if opened is not None:
        return opened
    raise ConfigError(
        f"no installed plugin reads model files like {path.name!r}", hint=pip_install("atropos-local[torch]")
    )
