"""Secrets of components: read from the environment when a run opens, and kept out of plans, logs and output."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import BaseModel, SecretStr

from atropos_cli.config.places import PREFIX
from atropos_cli.redaction import learn

if TYPE_CHECKING:
    from atropos_cli.config.resolve import Resolved


def secret_fields(model: type[BaseModel]) -> set[str]:
    """The names of the options typed SecretStr (or SecretStr | None)."""
    return {
        name
        for name, field in model.model_fields.items()
        if field.annotation is SecretStr or SecretStr in getattr(field.annotation, "__args__", ())
    }


def secrets_from_environment(model: type[BaseModel], prefix: str) -> dict[str, SecretStr]:
    """Those of the model's secrets that environment variables give: <prefix><NAME>; an empty one counts as not set."""
    texts = {name: os.environ.get(f"{prefix}{name.upper()}") for name in secret_fields(model)}
    secrets = {name: SecretStr(text) for name, text in texts.items() if text}
    for value in secrets.values():
        learn(value.get_secret_value())
    return secrets


def export_secrets(resolved: Resolved) -> None:
    """Take the secrets out of what was given, and set them as variables: a plan must not hold them."""
    for bucket in resolved.buckets:
        for option in bucket.options:
            if option.secret and len(option.path) == 1 and bucket.prefix:
                value = resolved.given[bucket.name].pop(option.path[0], None)
                if value is not None:
                    learn(str(value))
                    os.environ[f"{PREFIX}{bucket.prefix}{option.path[0].upper()}"] = str(value)
