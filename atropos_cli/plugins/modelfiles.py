"""Files of models, opened by the plugin that reads their format."""

from __future__ import annotations

from pathlib import Path

from atropos_cli.errors import ConfigError, PluginError
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.plugins.firstparty import pip_install
from atropos_cli.ports.modelfile import ModelFile
from atropos_cli.streams import stdout_to_stderr


def open_model_file(path: Path) -> ModelFile:
    """The file, opened by the first plugin that knows its format.

    Raises ConfigError when none does or the file is damaged, PluginError for the fault of a plugin.
    """
    from atropos_cli.plugins.discovery import get_registry

    for plugin, hook in get_registry().hooks("atropos_open_model_file"):
        try:
            with stdout_to_stderr():
                opened = hook.call({"path": path})
            if opened is not None and not isinstance(opened, ModelFile):
                raise TypeError(f"atropos_open_model_file gave {type(opened).__name__}, not a ModelFile")
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"plugin {plugin.entry_point!r} ({plugin.dist}) cannot open {path.name!r}: {describe_error(error)}"
            ) from error
        if opened is not None:
            return opened
    raise ConfigError(
        f"no installed plugin reads model files like {path.name!r}", hint=pip_install("atropos-local[torch]")
    )
