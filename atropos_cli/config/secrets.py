"""Secrets of components: read from the environment when a run opens, and kept out of plans, logs and output."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, SecretStr, create_model

from atropos_cli.redaction import learn


def secret_fields(model: type[BaseModel]) -> set[str]:
    """The names of the options typed SecretStr (or SecretStr | None)."""
    return {
        name
        for name, field in model.model_fields.items()
        if field.annotation is SecretStr or SecretStr in getattr(field.annotation, "__args__", ())
    }


def secrets_from_environment(model: type[BaseModel], prefix: str) -> dict[str, SecretStr]:
    """Those of the model's secrets that environment variables give: <prefix><NAME>."""
    names = secret_fields(model)
    if not names:
        return {}
    from pydantic_settings import BaseSettings

    fields: dict[str, Any] = dict.fromkeys(names, (SecretStr | None, None))
    reader = create_model("Secrets", __base__=BaseSettings, **fields)
    found = reader(_env_prefix=prefix)
    secrets: dict[str, SecretStr] = {name: value for name in names if (value := getattr(found, name)) is not None}
    for value in secrets.values():
        learn(value.get_secret_value())
    return secrets
