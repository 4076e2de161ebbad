"""Secrets come from the environment and never reach a plan."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, SecretStr

from atropos_cli.config.secrets import secret_fields, secrets_from_environment
from atropos_cli.rollout.references import make_config, public_options


class Options(BaseModel):
    level: int = 1
    token: SecretStr | None = None
    key: SecretStr = SecretStr("")


def test_secrets_are_found_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert secret_fields(Options) == {"token", "key"}
    monkeypatch.setenv("ATROPOS_ENV__TOKEN", "s3cret")
    monkeypatch.setenv("ATROPOS_ENV__LEVEL", "7")
    assert set(secrets_from_environment(Options, "ATROPOS_ENV__")) == {"token"}
    config = make_config(Options, {"level": 2}, owner="environment 'x'", env_prefix="ATROPOS_ENV__")
    assert isinstance(config, Options)
    assert (config.level, config.token and config.token.get_secret_value()) == (2, "s3cret")
    assert public_options(config) == {"level": 2}
    assert "s3cret" not in repr(config)
