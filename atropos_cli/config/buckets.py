"""The option groups of `atropos gen`: the command's settings, its environment's options, its backend's options."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel

from atropos_cli.config.options import options_of
from atropos_cli.config.settings import GenSettings
from atropos_cli.config.sources import Bucket

SETTINGS = "settings"
ENVIRONMENT = "env"
BACKEND = "backend"
SHARED_BACKEND = ("base_url", "api_key_env", "endpoint")
"""Backend options with a flag and a variable of their own: --base-url, ATROPOS_BASE_URL."""


def settings_bucket() -> Bucket:
    """The top level and the sections [sampling] and [execution]."""
    options = tuple(option for option in options_of(GenSettings) if option.path != ("backend_options",))
    return Bucket(name=SETTINGS, label="atropos gen", model=GenSettings, options=options)


def environment_bucket(
    model: type[BaseModel] | None, names: tuple[str, ...] = (), installed: Collection[str] = ()
) -> Bucket:
    """[env] and [environments.NAME]. model None: no environment is chosen."""
    return Bucket(
        name=ENVIRONMENT,
        label=f"environment {names[0]!r}" if names else "the environment",
        model=model,
        section="env",
        table="environments",
        prefix="ENV__",
        names=names,
        installed=installed,
    )


def backend_bucket(
    model: type[BaseModel] | None, names: tuple[str, ...] = (), installed: Collection[str] = ()
) -> Bucket:
    """[backend_options] and [backends.NAME]. model None: the backend is not known yet."""
    return Bucket(
        name=BACKEND,
        label=f"backend {names[0]!r}" if names else "the backend",
        model=model,
        section="backend_options",
        table="backends",
        prefix="BACKEND__",
        names=names,
        installed=installed,
        shared={name: (name,) for name in SHARED_BACKEND},
    )
