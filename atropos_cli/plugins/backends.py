"""A backend of a plugin's own, beside the run's: a frozen scorer, a judge, a second player."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from atropos_cli.errors import ConfigError
from atropos_cli.ports.backend import InferenceBackend
from atropos_cli.ports.metering import metered


def make_backend(name: str, options: Mapping[str, Any], *, model: str | None = None) -> InferenceBackend:
    """An installed backend, not yet open. The caller opens it, limits and retries its requests, and closes it.

    Inside a run its requests are counted, priced and limited like the run's own.
    Raises ComponentNotFound, ConfigError for options that it does not take, or PluginError.
    """
    from atropos_cli.plugins.discovery import get_registry

    cls = get_registry().find("backend", name).load()
    try:
        config = cls.Config.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"backend {name!r}, option {key!r}: {first['msg']}, got {first['input']!r}") from error
    backend: InferenceBackend = cls(config, model=model)
    return metered(backend)
